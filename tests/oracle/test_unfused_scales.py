"""Layers with one scale of the whole weight whose parts come one by one, from an iterator or a trainer: where parts of a fused layer
have the same they are that layer's, against the oracle byte for byte; otherwise they are refused with the numbers."""

import pytest
import safetensors.torch
import torch

import oracle
import quantized_checkpoints
import quantized_forms
from quantized_forms import FORMS

NUMBERS = {"fp8": "weight_scale", "compressed tensors": "weight_scale", "nvfp4": "weight_scale_2", "nvfp4 packed": "weight_global_scale"}
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("q_a_proj", "kv_a_proj_with_mqa"))


def make(source, folder, form):
    """Parts of a fused layer have the number of the first of them."""
    folder = quantized_forms.make(source, folder, form)
    tensors = oracle.read_tensors(folder)
    for name in tensors:
        module, _, suffix = name.rpartition(".")
        layer, _, part = module.rpartition(".")
        first = next((parts[0] for parts in FUSED if part in parts), part)
        if suffix == NUMBERS[form] and f"{layer}.{first}.{suffix}" in tensors:
            tensors[name] = tensors[f"{layer}.{first}.{suffix}"].clone()
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    return folder


def assert_same(got, expected):
    assert not isinstance(got, str), got
    assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("spec", ["qwen3_wide", "deepseek_v3_wide"])
@pytest.mark.parametrize("form", NUMBERS)
def test_parts_of_one_scale_are_taken_as_they_come(form, spec, checkpoint, tmp_path, load):
    folder, before = (make(checkpoint(spec, version), tmp_path / version, form) for version in "ab")
    recipe = FORMS[form].recipe
    for tp, rank in ((1, 0), (2, 1)):
        expected = quantized_checkpoints.served_tensors(folder, form, tp, rank, recipe)
        assert_same(load(folder, tp, rank, recipe), expected)
        for words in (("direct",), ("shuffled=3", f"before={before}"), ("shuffled=4", f"before={checkpoint(spec, 'a')}")):
            assert_same(load(folder, tp, rank, recipe, *words, way="iterator"), expected)
    if spec == "deepseek_v3_wide":
        expected = quantized_checkpoints.with_whole_experts(folder, form, 4, 3, recipe)
        assert_same(load(folder, 4, 3, recipe, "experts", way="iterator"), expected)


@pytest.mark.parametrize("form", NUMBERS)
@pytest.mark.parametrize("spec, layer, parts", [("qwen3_wide", "model.layers.1.self_attn", ("q_proj", "v_proj")),
                                                ("deepseek_v3_wide", "model.layers.1.mlp.experts.4", ("gate_proj", "up_proj"))])
def test_parts_of_several_scales_are_refused_with_the_numbers(form, spec, layer, parts, checkpoint, tmp_path, load):
    folder = make(checkpoint(spec, "a"), tmp_path / "made", form)
    tensors = oracle.read_tensors(folder)
    names = [f"{layer}.{part}.{NUMBERS[form]}" for part in parts]
    for name, number in zip(names, (0.25, 0.375)):
        tensors[name] = torch.full_like(tensors[name], number)
    if spec == "qwen3_wide":
        tensors[names[0].replace("q_proj", "k_proj")] = tensors[names[0]].clone()
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    for words in ((), ("shuffled=5",)):
        message = load(folder, 1, 0, FORMS[form].recipe, *words, way="iterator")
        assert "expected one scale of all parts of a fused layer, got '" in message, message
        assert "' of 0.250000" in message and f"'{names[1]}' of 0.375000" in message, message


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf"), 1e-45])
def test_a_reciprocal_that_cannot_be_is_named(number, checkpoint, tmp_path, load):
    folder = make(checkpoint("qwen3_wide", "a"), tmp_path / "made", "nvfp4 packed")
    name = "model.layers.1.mlp.down_proj.weight_global_scale"
    safetensors.torch.save_file(oracle.read_tensors(folder) | {name: torch.tensor([number])}, folder / "model.safetensors")
    for way in ("path", "iterator"):
        message = load(folder, 2, 1, "nvfp4", way=way)
        assert f"layer model.layers.1.mlp.down_proj: '{name}'" in message or f"'{name}'" in message, message
        assert "expected " in message and "finite" in message, message
