"""What vLLM's own loaders do, recorded and replayed, against the loaders: architectures that a CPU can build."""

import copy

import layercast
import models
import pytest
import torch
from layercast.dtypes import torch_dtype
from layercast.host.known_weights import difference, replayed
from layercast.host.recorder import record
from layercast.vllm.load_time import load_time, tensors_of

RANKS = [(0, 1), (0, 2), (1, 2)]

# What a loader computes, and so is not recorded.
COMPUTED = {
    "mamba2": {f"backbone.layers.{layer}.mixer.A": "computed by aten.neg.default" for layer in range(2)},
}

# Where Layercast's own plan calls things otherwise: vLLM's name to ours.
RENAMED = {
    "deepseek_v2": [(".experts.routed_experts.", ".experts.")],
    "deepseek_v3": [(".experts.routed_experts.", ".experts.")],
    "mamba2": [
        ("backbone.embeddings.", "model.embed_tokens."),
        ("backbone.norm_f.", "model.norm."),
        ("backbone.", "model."),
    ],
    "mixtral": [(".experts.routed_experts.", ".experts.")],
    "qwen2_moe": [(".experts.routed_experts.", ".experts.")],
    "qwen3_moe": [(".experts.routed_experts.", ".experts.")],
    "qwen3_next": [(".experts.routed_experts.", ".experts.")],
    "gpt_oss": [
        ("model.embedding.", "model.embed_tokens."),
        (".attn.", ".self_attn."),
        (".experts.routed_experts.", ".experts."),
    ],
}
# What ours has alone: what it computes of parameters, once for each version, and the parameters that vLLM computes.
ALONE = {
    "deepseek_v2": (".W_UK_T", ".W_UV"),
    "deepseek_v3": (".W_UK_T", ".W_UV"),
    "mamba2": (".mixer.A", ".mixer.A_log"),
    "qwen3_next": (".linear_attn.A",),
}


def in_our_order(name, parameter, tensor):
    """gpt-oss: vLLM leaves the rows of gate and up in turns, as they are on disk; ours are gate's, then up's."""
    if name == "gpt_oss" and parameter.rpartition(".")[2] in ("w13_weight", "w13_bias"):
        return torch.cat([tensor[:, ::2], tensor[:, 1::2]], 1)
    return tensor


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """checkpoint(name) -> (folder, tensors)."""
    made = {}

    def of(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = folder, models.saved(name, folder)
        return made[name]

    return of


def recorded(model, folder):
    with load_time(model):
        return record(model.load_weights, tensors_of(model), layercast.Checkpoint(str(folder)).specs)


def loaded_by_vllm(model, tensors):
    """All tensors of the model after its own load. A loader may write into what it is given."""
    before = {name: tensor.detach().clone() for name, tensor in tensors_of(model).items()}
    model.load_weights(iter(copy.deepcopy(tensors).items()))
    after = {name: tensor.detach() for name, tensor in tensors_of(model).items()}
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    return after, changed


def reloaded(plan, specs, tensors, **layout):
    buffers = {spec.name: torch.full(spec.shape, 3.0).to(torch_dtype(spec.dtype)) for spec in specs}
    with layercast.Receiver(plan, buffers=buffers, **layout) as receiver:
        receiver.reload_weights(list(tensors.items()))
    return buffers


@pytest.mark.parametrize(("tp_rank", "tp_size"), RANKS)
@pytest.mark.parametrize("name", models.MODELS)
def test_a_recording_fills_parameters_as_the_loader_does(checkpoint, name, tp_rank, tp_size):
    folder, tensors = checkpoint(name)
    with models.rank_of(folder, tp_rank=tp_rank, tp_size=tp_size) as config:
        model = models.built(config)
        loaded = recorded(model, folder)
        after, changed = loaded_by_vllm(model, tensors)
    assert loaded.computed == COMPUTED.get(name, {})
    names = {spec.name for spec in loaded.recording.parameters}
    assert changed - names - models.views_of(name) == loaded.computed.keys()
    wanted = {name: after[name] for name in names}
    assert difference(replayed(loaded.recording, tensors), wanted) == ""
    assert difference(reloaded(loaded.recording, layercast.buffer_specs(loaded.recording), tensors), wanted) == ""
    agrees_with_the_registry(name, folder, tensors, wanted, {"tp_rank": tp_rank, "tp_size": tp_size})


def agrees_with_the_registry(name, folder, tensors, wanted, layout):
    """Layercast's own plan, where it has one: the same names, shapes and bytes."""
    if name not in models.REGISTERED:
        with pytest.raises(layercast.Unsupported, match="not supported"):
            layercast.buffer_specs(folder, **layout)
        return
    specs = layercast.buffer_specs(folder, **layout)
    buffers = reloaded(folder, specs, tensors, **layout)
    alone = {spec.name for spec in specs if spec.name.endswith(ALONE.get(name, "none"))}
    assert bool(alone) == (name in ALONE)
    theirs = {renamed(name, parameter): in_our_order(name, parameter, tensor) for parameter, tensor in wanted.items()}
    assert difference({one: tensor for one, tensor in buffers.items() if one not in alone}, theirs) == ""


def renamed(name, parameter):
    for theirs, ours in RENAMED.get(name, ()):
        parameter = parameter.replace(theirs, ours)
    return parameter


def test_a_copy_that_is_left_out_shows(checkpoint):
    folder, tensors = checkpoint("llama")
    with models.rank_of(folder) as config:
        model = models.built(config)
        plan = recorded(model, folder).recording
        after, _ = loaded_by_vllm(model, tensors)
    less = layercast.Recording(plan.sources, plan.parameters, plan.copies[1:], plan.zeros)
    wanted = {spec.name: after[spec.name] for spec in plan.parameters}
    assert difference(replayed(less, tensors), wanted) != ""
    with pytest.raises(layercast.InvalidArgument, match=plan.copies[0].parameter):
        reloaded(less, layercast.buffer_specs(less), tensors)


def test_recording_leaves_the_model_as_it_was(checkpoint):
    folder, _ = checkpoint("qwen2")
    with models.rank_of(folder) as config:
        model = models.built(config)
        before = {name: (tensor.data_ptr(), tensor.detach().clone()) for name, tensor in tensors_of(model).items()}
        recorded(model, folder)
        after = tensors_of(model)
        assert before.keys() == after.keys()
        for name, (address, tensor) in before.items():
            assert after[name].data_ptr() == address and torch.equal(after[name], tensor), name
