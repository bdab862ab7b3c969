"""Checkpoints that compressed-tensors itself wrote: the codes and scales of its files are served byte for byte; dequantized, they are
what the library makes of them."""

import json

import pytest
import safetensors.torch
import torch

import compressed_tensors_checkpoints
import disk_names
import oracle
import quantized_checkpoints
from quantized_forms import Form

# The recipe whose kernel tensors a scheme's are; for the others there is none.
RECIPES = {"FP8": "fp8_per_tensor", "FP8_DYNAMIC": "fp8_per_channel", "FP8_BLOCK": "fp8_per_block", "W8A8": "int8_per_channel",
           "NVFP4": "nvfp4", "NVFP4A16": "nvfp4", "MXFP4": "mxfp4", "MXFP4A16": "mxfp4", "MXFP8": "mxfp8"}
INTEGERS = ("W4A16", "W8A16", "W4A16_ASYM", "W4A8", "W4AFP8")
MODELS = ("qwen3_blocks", "qwen3_moe_blocks")
IN_WHOLE_BLOCKS = ("qwen3_wide", "deepseek_v3_wide")


@pytest.fixture
def made(checkpoint, tmp_path):
    """Its folder, and what the library makes of it in full precision. `schemes`: of all linear layers, or target -> scheme."""

    def make(spec, schemes, *edit):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        source = one_by_one(checkpoint(spec, "a"), tmp_path / f"source of {folder.name}")
        schemes = schemes if isinstance(schemes, dict) else {"Linear": schemes}
        return folder, compressed_tensors_checkpoints.make(source, folder, schemes, *edit)

    return make


def one_by_one(source, folder):
    """Experts as modules, which is what the library quantizes."""
    config, tensors = oracle.read_config(source), oracle.read_tensors(source)
    folder.mkdir()
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in disk_names.unfused(config, tensors).items()},
                                folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def served_as_it_is(folder, scheme, tp, rank):
    return quantized_checkpoints.served_tensors(folder, Form(RECIPES[scheme], "weight_scale", {}), tp, rank, RECIPES[scheme])


def assert_same(got, expected):
    assert not isinstance(got, str), got
    assert oracle.differences(got, expected) == []


CASES = [(model, scheme, 2) for scheme in RECIPES if scheme != "FP8_BLOCK" for model in MODELS]
CASES += [(IN_WHOLE_BLOCKS[0], "FP8_BLOCK", 1), (IN_WHOLE_BLOCKS[1], "FP8_BLOCK", 2)]


@pytest.mark.parametrize("model, scheme, tp", CASES)
def test_a_cold_load_and_a_reload_serve_the_bytes_of_its_files(model, scheme, tp, made, load, checkpoint):
    folder, _ = made(model, scheme)
    for rank in range(tp):
        expected = served_as_it_is(folder, scheme, tp, rank)
        assert_same(load(folder, tp, rank, RECIPES[scheme]), expected)
        assert_same(load(folder, tp, rank, "checkpoint", "direct", f"before={checkpoint(model, 'b')}"), expected)


@pytest.mark.parametrize("scheme", ["FP8_DYNAMIC", "W8A8", "NVFP4", "MXFP4", "MXFP8"])
@pytest.mark.parametrize("model", MODELS)
def test_a_publisher_sends_the_bytes_of_its_files(model, scheme, made, load, publish):
    folder, _ = made(model, scheme)
    endpoint = publish(folder, "stream", "layer")
    assert_same(load(folder, 1, 0, RECIPES[scheme], "channel=shm", way=endpoint), served_as_it_is(folder, scheme, 1, 0))


@pytest.mark.parametrize("scheme", [*RECIPES, *INTEGERS])
@pytest.mark.parametrize("model", MODELS)
def test_dequantized_they_are_what_the_library_makes_of_them(model, scheme, made, load, tmp_path):
    folder, plain = made(model, scheme)
    assert_dequantized(folder, plain, tmp_path / "plain", load)


def assert_dequantized(folder, tensors, plain, load):
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    plain.mkdir()
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, plain / "model.safetensors")
    config = oracle.read_config(folder)
    del config["quantization_config"]
    (plain / "config.json").write_text(json.dumps(config))
    for tp, rank in ((1, 0), (2, 1)):
        assert_same(load(folder, tp, rank, "none", "requantize", "direct"), oracle.served_tensors(plain, tp, rank, "none"))


def test_each_layer_is_in_the_form_of_its_group(made, load, tmp_path):
    schemes = {"re:.*self_attn.*": "FP8_DYNAMIC", "re:.*experts.*": "MXFP4"}
    folder, plain = made("qwen3_moe_blocks", schemes)
    assert oracle.read_config(folder)["quantization_config"]["format"] == "mixed-precision"
    alone = [served_as_it_is(made("qwen3_moe_blocks", scheme)[0], scheme, 2, 1) for scheme in schemes.values()]
    expected = {name: tensor for name, tensor in alone[0].items() if ".experts." not in name}
    expected |= {name: tensor for name, tensor in alone[1].items() if ".experts." in name}
    assert_same(load(folder, 2, 1, "checkpoint"), expected)
    assert_dequantized(folder, plain, tmp_path / "plain", load)


@pytest.mark.parametrize("scheme", INTEGERS)
def test_what_no_recipe_makes_is_refused_unless_it_may_be_dequantized(scheme, made, load):
    folder, _ = made(MODELS[0], scheme)
    for recipe in ("checkpoint", "none"):
        message = load(folder, 1, 0, recipe)
        assert "expected weights for none, got codes of " in message and "integers" in message, message


@pytest.mark.parametrize("scheme", ["FP8", "NVFP4"])
@pytest.mark.parametrize("model", MODELS)
def test_scales_of_activations_are_the_largest_of_its_files(model, scheme, made, load):
    folder, _ = made(model, scheme)
    holds = ("input_scales",)
    expected = quantized_checkpoints.served_tensors(folder, Form(RECIPES[scheme], "weight_scale", {}), 2, 1, RECIPES[scheme], holds)
    assert any(name.endswith("input_scale") for name in expected)
    assert_same(load(folder, 2, 1, RECIPES[scheme], *holds), expected)


def asymmetric_activations(scheme):
    scheme.input_activations.symmetric, scheme.input_activations.dynamic, scheme.input_activations.strategy = False, False, "tensor"


def test_zero_points_of_activations_are_skipped_unless_their_scales_are_held(made, load):
    folder, _ = made(MODELS[0], "W8A8", asymmetric_activations)
    assert any(name.endswith("input_zero_point") for name in oracle.read_tensors(folder))
    assert_same(load(folder, 1, 0, "int8_per_channel"), served_as_it_is(folder, "W8A8", 1, 0))
    assert "input_zero_point" in load(folder, 1, 0, "int8_per_channel", "input_scales")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scheme, why", [("W3A16", "num_bits: expected 4 or 8 of packed integers, got 3"),
                                         ("MXFP6A16", "num_bits: expected 8 or 4, got 6")])
def test_codes_packed_in_another_way_are_refused_naming_the_field(scheme, why, model, made, load):
    folder, _ = made(model, scheme)
    message = load(folder, 1, 0, "none", "requantize")
    assert "layer model.layers.0." in message and ".weight_packed' is [" in message and why in message, message


def test_an_order_of_columns_that_is_of_calibration_alone_changes_nothing(made, load, tmp_path):
    """GPTQ's "weight", which "static" is another name of."""
    folder, _ = made(MODELS[0], "W4A16", lambda scheme: setattr(scheme.weights, "actorder", "weight"))
    assert oracle.read_config(folder)["quantization_config"]["config_groups"]["group_0"]["weights"]["actorder"] == "weight"
    got = load(folder, 1, 0, "none", "requantize")
    assert not isinstance(got, str), got
