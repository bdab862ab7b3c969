"""What vLLM's own loaders do, recorded and replayed, against the loaders: architectures that a CPU can build."""

import copy

import layercast
import models
import pytest
import torch
from layercast import TensorSpec
from layercast.dtypes import torch_dtype
from layercast.host.known_weights import difference, replayed
from layercast.host.loader_run import computed_values
from layercast.host.recorder import record
from layercast.host.whole_sources import beside, whole_sources
from layercast.vllm.load_time import load_time, tensors_of

RANKS = [(0, 1), (0, 2), (1, 2)]

# What a loader computes, and so is no copy: Mamba's A, of A_log. How many layers of a model have one.
COMPUTED = {"mamba": 2, "mamba2": 2, "falcon_mamba": 2, "zamba2": 3, "falcon_h1": 2, "nemotron_h": 2}
COMPUTED |= {"granitemoehybrid": 1, "jamba": 1}

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
    "nemotron_h": [("model.norm_f.", "model.norm.")],
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
    "nemotron_h": (".mixer.A", ".mixer.A_log"),
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
        computed = left_to_vllm(model, loaded, tensors, {"tp_rank": tp_rank, "tp_size": tp_size})
        after, changed = loaded_by_vllm(model, tensors)
    assert loaded.refused == {}
    names = {spec.name for spec in loaded.recording.parameters}
    assert {one for one in changed - names if not models.is_view(one)} == loaded.computed.keys()
    assert len(loaded.computed) == COMPUTED.get(name, 0)
    for target, of in loaded.computed.items():
        assert target.endswith(".A") and len(of.sources) == 1 and next(iter(of.sources)).endswith(".A_log")
    assert difference(computed, {target: after[target] for target in loaded.computed}) == ""
    wanted = {name: after[name] for name in names}
    assert difference(replayed(loaded.recording, tensors), wanted) == ""
    assert difference(reloaded(loaded.recording, layercast.buffer_specs(loaded.recording), tensors), wanted) == ""
    agrees_with_the_registry(name, folder, tensors, wanted, {"tp_rank": tp_rank, "tp_size": tp_size})


def left_to_vllm(model, loaded, tensors, layout):
    """What vLLM's loader computes of the sources that a receiver has staged whole."""
    part = beside(loaded, ())
    staged = reloaded(part, layercast.buffer_specs(part), tensors, **layout)
    live = list(tensors_of(model).values())
    with load_time(model):
        return computed_values(model.load_weights, model, loaded, whole_sources(part, staged), live)


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


def test_a_patch_embedding_of_five_axes_is_adopted(checkpoint):
    """vLLM's own convolution of vision towers (Qwen2-VL), on a model around it alone."""
    from layercast.vllm.adoption import adopt
    from vllm.model_executor.layers.conv import Conv3dLayer
    from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
    from vllm.model_executor.models.utils import AutoWeightsLoader

    class Tower(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = Conv3dLayer(3, 32, kernel_size=(2, 4, 4), stride=(2, 4, 4), bias=False)

        def load_weights(self, weights):
            AutoWeightsLoader(self).load_weights(weights)

    weight = torch.randn(32, 3, 2, 4, 4).to(torch.bfloat16)
    with models.rank_of(checkpoint("llama")[0]):
        tower = Tower()
        record_metadata_for_reloading(tower)
        with load_time(tower):
            loaded = record(tower.load_weights, tensors_of(tower), [TensorSpec("proj.weight", "BF16", weight.shape)])
        adoption = adopt(tower, loaded)
    assert [layer.adopted for layer in adoption.layers] == [True]
    with layercast.Receiver(adoption.recording, buffers=adoption.buffers) as receiver:
        receiver.reload_weights({"proj.weight": weight})
    assert torch.equal(tower.proj.weight, weight)
