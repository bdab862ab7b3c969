"""Recipes by themselves, against torch's definition of them (tests/oracle/reference/recipes.py), and one written out."""

import layercast
import numpy
import pytest
import recipes
import torch


def weight(rows=48, columns=128, dtype=torch.bfloat16):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(5)).to(dtype)


def test_fp8_per_channel_is_what_its_definition_says():
    given = weight()
    scale = (given.float().abs().amax(dim=1, keepdim=True) / 448.0).clamp(min=1.0 / (448.0 * 512.0))
    codes = (given.float() / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    made = layercast.quantize(given, "fp8_per_channel")
    assert list(made) == ["weight", "weight_scale"]
    assert torch.equal(made["weight_scale"].torch(), scale)
    assert torch.equal(made["weight"].torch().view(torch.uint8), codes.view(torch.uint8))


@pytest.mark.parametrize("recipe", layercast.known_recipes())
def test_every_recipe_makes_the_bytes_of_its_reference(recipe):
    given = weight()
    expected = recipes.quantize(recipe, given, given.float().abs().amax(), given.float().abs().amax(dim=1))
    made = layercast.quantize(given, recipe)
    assert set(made) == set(expected)
    for name, tensor in made.items():
        assert tensor.shape == tuple(expected[name].shape)
        assert torch.equal(tensor.torch().view(torch.uint8), expected[name].contiguous().view(torch.uint8)), name


@pytest.mark.parametrize("recipe", sorted(set(layercast.known_recipes()) - {"none"}))
def test_dequantizing_is_the_codes_times_their_scales(recipe):
    given = weight()
    back = layercast.dequantize(layercast.quantize(given, recipe), recipe, tuple(given.shape), dtype="float32").torch()
    steps = {"mxfp4": 1 / 3, "nvfp4": 1 / 3}.get(recipe, 1 / 14)
    assert back.dtype == torch.float32
    assert (back - given.float()).abs().max() <= steps * given.float().abs().max()


def test_arrays_of_numpy_are_quantized_to_the_same_bytes():
    given = weight(dtype=torch.float32)
    one, other = layercast.quantize(given), layercast.quantize(given.numpy())
    assert [bytes(tensor.data) for tensor in one.values()] == [bytes(tensor.data) for tensor in other.values()]


@pytest.mark.parametrize("given, recipe, error, words", [
    (torch.ones(4), "fp8_per_channel", layercast.InvalidArgument, r"\[rows, columns\], got \[4\]"),
    (torch.ones(4, 4), "fp3", layercast.InvalidArgument, "fp3"),
    (torch.full((4, 4), float("nan")), "fp8_per_channel", layercast.Corrupt, "NaN"),
    (torch.ones(4, 4, dtype=torch.int32), "fp8_per_channel", layercast.InvalidArgument, "i32"),
    ("ones", "fp8_per_channel", layercast.InvalidArgument, "a str"),
    (None, "fp8_per_channel", layercast.InvalidArgument, "a NoneType"),
], ids=["a vector", "recipe", "NaN", "integers", "a str", "None"])
def test_what_cannot_be_quantized_is_refused(given, recipe, error, words):
    with pytest.raises(error, match=words):
        layercast.quantize(given, recipe)


@pytest.mark.parametrize("change, options, words", [
    (lambda made: made.pop("weight_scale"), {}, "expected 2 kernel tensors, got 1"),
    (lambda made: made.update(weight=numpy.zeros((2, 2), numpy.float32)), {}, r"'weight': expected \[48, 128\] f8_e4m3"),
    (lambda made: None, {"shape": (48, 64)}, r"'weight': expected \[48, 64\]"),
    (lambda made: None, {"dtype": "int8"}, "float32, bfloat16 or float16, got int8"),
], ids=["missing", "another", "shape", "dtype"])
def test_kernel_tensors_that_do_not_fit_are_refused(change, options, words):
    made = layercast.quantize(weight())
    change(made)
    with pytest.raises(layercast.InvalidArgument, match=words):
        layercast.dequantize(made, "fp8_per_channel", options.pop("shape", (48, 128)), **options)


def test_the_recipes_are_those_that_the_reference_defines():
    assert sorted(layercast.known_recipes()) == sorted(recipes.RECIPES)
