"""What ranks of Megatron-core hold, put together from their parts, is the checkpoint, byte for byte, and an engine takes it
from as many publishers: over modules with Megatron's names and attributes (megatron_model.py)."""

import contextlib
import json

import layercast
import pytest
import safetensors.torch
import torch
from assembly import assert_same, assembled
from layercast.trainer.megatron_reader import Ranks, Split
from layercast.trainer.piece import Piece
from megatron_model import Whole

_SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
          "vocab_size": 131, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True}
FAMILIES = {
    "llama": {"head_dim": 16, "attention_bias": True, "mlp_bias": True},
    "mistral": {"head_dim": 16},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {**_EXPERTS, "head_dim": 16, "decoder_sparse_step": 2},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 32},
    "mixtral": {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 16},
}
MIXTURES = ("qwen3_moe", "qwen2_moe", "mixtral")


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory):
    """checkpoint_of(family) -> its folder, as transformers has written it, and the tensors in it."""
    kept = {}

    def make(family):
        if family not in kept:
            from transformers import AutoConfig, AutoModelForCausalLM

            folder = tmp_path_factory.mktemp(family)
            torch.manual_seed(1)
            config = AutoConfig.for_model(family, **_SMALL, **FAMILIES[family])
            AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
            kept[family] = folder, safetensors.torch.load_file(folder / "model.safetensors")
        return kept[family]

    return make


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def ranks(tp, pp, ep, dp):
    """Of a world: tensor rank, stage, data parallel rank; experts are spread over the ranks of a stage."""
    for stage in range(pp):
        for data in range(dp):
            for rank in range(tp):
                experts = data * tp + rank  # experts are whole: the ranks of a stage in the order of their numbers
                yield rank, stage, Ranks(Split(rank, tp), Split(experts % ep, ep), Split(), data == 0, experts < ep)


def parts_of_all(whole, folder, tp, pp, ep=1, dp=1, **how):
    parts = []
    for rank, stage, at in ranks(tp, pp, ep, dp):
        model = whole.on(tp, rank, pp, stage, ep, at.experts.rank, **how)
        parts.append(layercast.megatron.shards(model if len(model) > 1 else model[0], folder, ranks=at))
    return parts


def put_together(parts):
    return assembled(Piece(name, tensor, *part) for of_rank in parts for name, tensor, part in of_rank)


@pytest.mark.parametrize("te", [False, True], ids=["norms apart", "norms fused"])
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_of_all_ranks_are_the_checkpoint(family, te, checkpoint_of):
    folder, tensors = checkpoint_of(family)
    whole = Whole(tensors, config_of(folder), "modules")
    for tp, pp in ((1, 1), (2, 2), (4, 1)):
        assert_same(put_together(parts_of_all(whole, folder, tp, pp, te=te)), tensors)


@pytest.mark.parametrize("experts_as", ["modules", "grouped", "stacked"])
@pytest.mark.parametrize("family", MIXTURES)
def test_experts_of_all_ranks_are_the_checkpoints(family, experts_as, checkpoint_of):
    folder, tensors = checkpoint_of(family)
    whole = Whole(tensors, config_of(folder), experts_as)
    for tp, pp, ep, dp in ((2, 2, 2, 1), (1, 2, 2, 2), (2, 1, 2, 2)):
        assert_same(put_together(parts_of_all(whole, folder, tp, pp, ep, dp)), tensors)


def test_the_chunks_of_an_interleaved_pipeline_are_one_model(checkpoint_of):
    folder, tensors = checkpoint_of("qwen3")
    assert_same(put_together(parts_of_all(Whole(tensors, config_of(folder), ""), folder, 2, 2, chunks=2)), tensors)


def test_replicas_publish_nothing_twice_and_parts_are_no_copies(checkpoint_of):
    folder, tensors = checkpoint_of("qwen3")
    whole = Whole(tensors, config_of(folder), "")
    assert [len(parts) > 0 for parts in parts_of_all(whole, folder, tp=2, pp=1, dp=2)] == [True, True, False, False]
    (model,) = whole.on(2, 1)
    parts = layercast.megatron.shards(model, folder, ranks=Ranks(Split(1, 2)))
    held = {parameter.untyped_storage().data_ptr() for parameter in model.parameters() if parameter.dtype == torch.bfloat16}
    copies = {name for name, tensor, _ in parts if tensor.untyped_storage().data_ptr() not in held}
    assert {name.split(".")[-2] for name in copies} == {"q_proj", "k_proj", "v_proj"}  # norms, in fp32, are the first rank's
    masters = layercast.megatron.shards(model, folder, dtype=torch.float32, ranks=Ranks(Split(1, 2)))
    assert {tensor.dtype for _, tensor, _ in masters} == {torch.float32}


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_an_engine_takes_the_parts_of_all_ranks(family, checkpoint_of, buffers):
    folder, tensors = checkpoint_of(family)
    parts = parts_of_all(Whole(tensors, config_of(folder), "grouped"), folder, 2, 2, 2)
    layout = {"quantization": "fp8_per_channel"}
    served, cold = buffers(folder, **layout), buffers(folder, **layout)
    with contextlib.ExitStack() as stack:
        publishers = [stack.enter_context(layercast.Publisher(lineage="run")) for _ in parts]
        for number, (publisher, of_rank) in enumerate(zip(publishers, parts)):
            publisher.publish(of_rank, step=1, rank=(number, len(parts)), run="r")
        receiver = stack.enter_context(layercast.Receiver(folder, buffers=served, **layout))
        receiver.reload_weights([publisher.endpoint for publisher in publishers])
        loader = stack.enter_context(layercast.Receiver(folder, buffers=cold, **layout))
        loader.reload_weights(folder)
    assert_same(served, cold)


def test_one_process_publishes_alone(checkpoint_of, publisher):
    folder, tensors = checkpoint_of("qwen2")
    (model,) = Whole(tensors, config_of(folder), "").on(1, 0)
    published = layercast.megatron.publish(publisher, model, folder, step=3, ranks=Ranks())
    assert (published.version.step, published.readers) == (3, 0)
    assert layercast.megatron.publish(publisher, model, folder, step=4, ranks=Ranks(dense=False, expert=False)) is None


def spoilt(model, path, tensor):
    parent, _, name = path.rpartition(".")
    module = model.get_submodule(parent)
    module.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))


@pytest.mark.parametrize(("path", "shape", "error", "words"), [
    ("decoder.layers.1.mlp.unknown_weight", (4,), layercast.Unsupported, "'decoder.layers.1.mlp.unknown_weight'.*qwen3 model"),
    ("decoder.position_weight", (4,), layercast.Unsupported, "'decoder.position_weight'"),
    ("decoder.layers.0.self_attention.linear_qkv.weight", (70, 64), layercast.FailedPrecondition,
     r"'model.layers.0.self_attn.qkv': expected 4 groups of 2 \+ 2 heads of 16 rows over 2 ranks, got 70"),
])
def test_a_parameter_that_is_not_known_or_does_not_fit_is_named(path, shape, error, words, checkpoint_of):
    folder, tensors = checkpoint_of("qwen3")
    (model,) = Whole(tensors, config_of(folder), "").on(2, 0)
    spoilt(model, path, torch.zeros(shape, dtype=torch.bfloat16))
    with pytest.raises(error, match=words):
        layercast.megatron.shards(model, folder, ranks=Ranks(Split(0, 2)))


def test_a_family_and_a_config_that_are_not_known_are_named():
    with pytest.raises(layercast.Unsupported, match="model_type 'gpt2': layercast.megatron knows llama, mistral"):
        layercast.megatron.shards(torch.nn.Module(), {"model_type": "gpt2"}, ranks=Ranks())
    with pytest.raises(layercast.InvalidArgument, match="config: expected a folder, a dict"):
        layercast.megatron.shards(torch.nn.Module(), 7, ranks=Ranks())
