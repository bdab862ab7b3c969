"""Layers with one scale of the whole weight whose parts come one by one, each with a scale of its own: from a checkpoint on disk, an
iterator, a publisher's snapshot or stream, or the ranks of a sharded trainer, a layer serves what the oracle says, byte for byte."""

import json
import math

import pytest
import safetensors.torch
import torch

import oracle
import quantized_checkpoints
import quantized_forms
from quantized_forms import FORMS

NUMBERS = {"fp8": "weight_scale", "compressed tensors": "weight_scale", "nvfp4": "weight_scale_2", "nvfp4 packed": "weight_global_scale"}
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("q_a_proj", "kv_a_proj_with_mqa"))
EXPERT = "model.layers.1.mlp.experts.4"


def rewrite(folder, edit):
    tensors = oracle.read_tensors(folder)
    safetensors.torch.save_file(edit(tensors) or tensors, folder / "model.safetensors")
    return folder


def with_one_scale(form):
    """Parts of a fused layer have the number of the first of them."""

    def edit(tensors):
        for name in tensors:
            module, _, suffix = name.rpartition(".")
            layer, _, part = module.rpartition(".")
            first = next((parts[0] for parts in FUSED if part in parts), part)
            if suffix == NUMBERS[form] and f"{layer}.{first}.{suffix}" in tensors:
                tensors[name] = tensors[f"{layer}.{first}.{suffix}"].clone()

    return edit


def with_scales_of_their_own(form):
    """Of every fused layer and every expert the parts have scales that differ, and the largest is not always of the same part."""

    def edit(tensors):
        numbers = [name for name in tensors if name.endswith("." + NUMBERS[form])]
        for i, name in enumerate(numbers):
            tensors[name] *= 1.0 + (i * 5 % 7) / 8
        for parts in FUSED:
            of_layers = {name.rpartition(f".{parts[0]}.")[0] for name in numbers if f".{parts[0]}." in name}
            scales = [[tensors[f"{layer}.{part}.{NUMBERS[form]}"].item() for part in parts] for layer in of_layers]
            assert all(len(set(of_parts)) == len(parts) for of_parts in scales), scales

    return edit


@pytest.fixture
def make(checkpoint, tmp_path):
    def make(spec, form, edit, version="a"):
        return rewrite(quantized_forms.make(checkpoint(spec, version), tmp_path / f"{form} {version}", form), edit(form))

    return make


def assert_same(got, expected):
    assert not isinstance(got, str), got
    assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("edit", [with_one_scale, with_scales_of_their_own])
@pytest.mark.parametrize("spec", ["qwen3_wide", "deepseek_v3_wide"])
@pytest.mark.parametrize("form", NUMBERS)
def test_parts_are_taken_as_they_come(form, spec, edit, make, checkpoint, load):
    before, folder = (make(spec, form, edit, version) for version in "ba")
    recipe = FORMS[form].recipe
    for tp, rank in ((1, 0), (2, 1), (4, 2)):
        expected = quantized_checkpoints.served_tensors(folder, form, tp, rank, recipe)
        assert_same(load(folder, tp, rank, recipe), expected)
        words = (("direct",), ("shuffled=3", f"before={before}"), ("shuffled=4", f"before={checkpoint(spec, 'a')}"))[rank]
        assert_same(load(folder, tp, rank, recipe, *words, way="iterator"), expected)
    assert_same(load(folder, tp, rank, recipe, "device", "direct"), expected)
    if spec == "deepseek_v3_wide":
        expected = quantized_checkpoints.with_whole_experts(folder, form, 4, 3, recipe)
        assert_same(load(folder, 4, 3, recipe, "experts", way="iterator"), expected)


@pytest.mark.parametrize("mode, order", [("snapshot", "layer"), ("stream", "layer"), ("stream", "11")])
@pytest.mark.parametrize("spec", ["qwen3_wide", "deepseek_v3_wide"])
@pytest.mark.parametrize("form", NUMBERS)
def test_parts_may_come_from_a_publisher(form, spec, mode, order, make, publish, load_all):
    folder = make(spec, form, with_scales_of_their_own)
    for tp, words in ((1, ("direct", "device")), (2, ("chunk=30000",))):
        served = load_all(folder, tp, FORMS[form].recipe, *words, way=publish(folder, mode, order))
        for rank, got in enumerate(served):
            assert_same(got, quantized_checkpoints.served_tensors(folder, form, tp, rank, FORMS[form].recipe))


def cut(folder, out, ranks):
    """What each rank of a trainer holds: a part of the rows of every other matrix, of the columns of the others, and whole numbers."""
    held = [{} for _ in range(ranks)]
    parts = [{} for _ in range(ranks)]
    for i, (name, tensor) in enumerate(sorted(oracle.read_tensors(folder).items())):
        axis = i % 2 if tensor.dim() == 2 else 0
        raw = tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor
        chunks = raw.tensor_split(ranks, dim=axis) if tensor.dim() == 2 else [None] * (i % ranks) + [raw]
        at = 0
        for rank, chunk in enumerate(chunks):
            if chunk is None:
                continue
            held[rank][name] = chunk.contiguous().view(tensor.dtype)
            parts[rank][name] = {"whole": list(tensor.shape), "offsets": [at if d == axis else 0 for d in range(tensor.dim())]}
            at += chunk.shape[axis] if tensor.dim() == 2 else 0
    for rank in range(ranks):
        (out / str(rank)).mkdir(parents=True)
        safetensors.torch.save_file(held[rank], out / str(rank) / "model.safetensors")
        (out / str(rank) / "parts.json").write_text(json.dumps(parts[rank]))
    return [out / str(rank) for rank in range(ranks)]


@pytest.mark.parametrize("mode", ["snapshot", "stream"])
@pytest.mark.parametrize("spec", ["qwen3_wide", "deepseek_v3_wide"])
@pytest.mark.parametrize("form", ["fp8", "nvfp4", "nvfp4 packed"])
def test_parts_may_be_cut_over_the_ranks_of_a_trainer(form, spec, mode, make, publish, load, tmp_path):
    """Of rows and columns of codes, wherever parts and blocks end."""
    folder = make(spec, form, with_scales_of_their_own)
    folders = cut(folder, tmp_path / "cut", 3)
    endpoints = [publish(of_rank, mode, "checkpoint", f"{rank}/3") for rank, of_rank in enumerate(folders)]
    expected = quantized_checkpoints.served_tensors(folder, form, 1, 0, FORMS[form].recipe)
    assert_same(load(folder, 1, 0, FORMS[form].recipe, "direct", way=",".join(endpoints)), expected)


PARTS = {"qwen3_wide": ("model.layers.1.self_attn.k_proj", "model.layers.1.self_attn.qkv_proj"),
         "deepseek_v3_wide": (f"{EXPERT}.up_proj", "model.layers.1.mlp.experts")}  # a part, its layer
CANNOT_BE = {
    "missing": ("fp8", lambda scale: None, "'{name}', are missing"),
    "negative": ("fp8", lambda scale: -scale, "'{name}': expected finite scales that are not negative, got -"),
    "two": ("fp8", lambda scale: scale.expand(2).clone(), "'{name}' expected [1] f32, got [2] f32"),
    "a negative factor": ("nvfp4", lambda scale: -scale, "'{name}': expected finite scales that are not negative, got -"),
    "no reciprocal": ("nvfp4 packed", lambda scale: scale * 0, "'{name}': expected a finite number above zero"),
}
# Behind a publisher the same code refuses all of them.
WAYS = [(spec, change, way) for spec in PARTS for change in CANNOT_BE for way in ("path", "iterator")]
WAYS += [(spec, change, way) for spec, change in zip(PARTS, ("negative", "no reciprocal")) for way in ("snapshot", "stream")]


@pytest.mark.parametrize("spec, change, way", WAYS)
def test_a_scale_of_a_part_that_cannot_be_is_named(spec, change, way, make, publish, load):
    """Also where another part's has the same magnitude."""
    form, change, refusal = CANNOT_BE[change]
    part, layer = PARTS[spec]
    name = f"{part}.{NUMBERS[form]}"

    def edit(tensors):
        with_one_scale(form)(tensors)
        tensors[name] = change(tensors[name].reshape(1))
        return {key: value for key, value in tensors.items() if value is not None}

    folder = make(spec, form, lambda form: edit)
    way = publish(folder, way, "layer") if way in ("snapshot", "stream") else way
    message = load(folder, 1, 0, FORMS[form].recipe, way=way)
    assert isinstance(message, str) and f"layer {layer}: " in message and refusal.format(name=name) in message, message


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf"), 1e-45])
def test_a_reciprocal_that_cannot_be_is_named(number, make, load):
    """What is not finite is refused wherever it stands, before its layer is known."""
    name = "model.layers.1.mlp.down_proj.weight_global_scale"
    folder = make("qwen3_wide", "nvfp4 packed", lambda form: lambda tensors: tensors.update({name: torch.tensor([number])}))
    for way in ("path", "iterator"):
        message = load(folder, 2, 1, "nvfp4", way=way)
        refusal = f"layer model.layers.1.mlp.down_proj: '{name}': expected a finite number above zero, whose reciprocal is the scale"
        assert (refusal if math.isfinite(number) else f"'{name}' ([1] f32): expected finite values") in message, message
