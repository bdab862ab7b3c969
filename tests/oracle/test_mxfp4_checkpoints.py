"""Experts in MXFP4, as GPT-OSS's are published, against the oracle byte for byte: served as they are, or unpacked."""

import pytest
import safetensors.torch

import mxfp4_checkpoints
import oracle
import recipes
from quantized_forms import edit_config


@pytest.fixture
def mxfp4(checkpoint, tmp_path):
    return mxfp4_checkpoints.make_mxfp4(checkpoint("gpt_oss_blocks", "a"), tmp_path / "mxfp4")


@pytest.mark.parametrize("recipe", [recipe for recipe in recipes.RECIPES if recipe != "mxfp4"])
def test_mxfp4_experts_are_unpacked_if_asked_for(recipe, mxfp4, load):
    packed, plain = mxfp4
    for tp in (1, 2, 4):
        for rank in range(tp):
            expected = mxfp4_checkpoints.with_experts_alone_quantized(plain, tp, rank, recipe)
            got = load(packed, tp, rank, recipe, "requantize", *(("direct",) if rank % 2 else ()))
            assert not isinstance(got, str), got
            assert oracle.differences(got, expected) == []


def test_mxfp4_experts_are_served_as_they_are(mxfp4, load):
    packed, plain = mxfp4
    for tp in (1, 2, 4):
        for rank in range(tp):
            expected = mxfp4_checkpoints.with_experts_in_blocks(packed, plain, tp, rank)
            for way, words in (("path", ()), ("path", ("direct", "chunk=3000")), ("iterator", ("shuffled=5",))):
                got = load(packed, tp, rank, "mxfp4", *words, way=way)
                assert not isinstance(got, str), got
                assert oracle.differences(got, expected) == []


def test_mxfp4_experts_are_refused_under_another_recipe_unless_asked_for(mxfp4, load):
    for words, way in (((), "path"), (("requantize",), "iterator")):  # a trainer's are what they are
        message = load(mxfp4[0], 1, 0, "none", *words, way=way)
        assert "layer model.layers.0.mlp.experts: 'model.layers.0.mlp.experts.gate_up_proj_blocks': " in message
        assert "expected weights for none, got codes of mxfp4" in message and "requantize" in message


def test_mxfp4_experts_of_a_layer_that_is_not_quantized_are_refused(mxfp4, load):
    edit_config(mxfp4[0], lambda config: config.pop("quantization_config"))
    assert "config.json gives this layer no quantized form" in load(mxfp4[0], 1, 0, "mxfp4")


def test_mxfp4_scales_that_cannot_be_are_named(mxfp4, load):
    packed, _ = mxfp4
    path = packed / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    name = "model.layers.1.mlp.experts.down_proj_scales"
    scales = tensors[name]

    def message(other):
        changed = {**tensors, name: other}
        safetensors.torch.save_file({key: value for key, value in changed.items() if value is not None}, path)
        return load(packed, 1, 0, "none", "requantize")

    nan = scales.clone()
    nan.view(-1)[7] = 255
    message(nan)
    for words in ((), ("direct",)):
        served = load(packed, 1, 0, "mxfp4", *words)
        assert "'model.layers.1.mlp.experts.w2_weight_scale' expected powers of two, got NaN at element 7" in served
    assert f"'{name}' expected powers of two, got NaN at element 7" in message(nan)
    assert f"its scales, '{name}', are missing" in message(None)
    assert "[5, 128, 4]" in message(scales[:, :100].clone()) and "[5, 100, 4]" in message(scales[:, :100].clone())
