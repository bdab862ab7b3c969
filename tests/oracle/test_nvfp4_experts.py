"""Experts in NVFP4, one by one under ModelOpt's or compressed-tensors' names, against the oracle byte for byte: gate and up of an
expert are brought to the larger of their two global scales, down is served as it is."""

import pytest
import safetensors.torch
import torch

import oracle
import quantized_checkpoints

FORMS = {"nvfp4": "weight_scale_2", "nvfp4 packed": "weight_global_scale"}
EXPERTS = "model.layers.1.mlp.experts"
COUNT = 6


@pytest.fixture
def made(checkpoint, tmp_path):
    def make(form, version="a"):
        return quantized_checkpoints.make(checkpoint("deepseek_v3_wide", version), tmp_path / f"{form} {version}", form)

    return make


def change(folder, edit):
    path = folder / "model.safetensors"
    safetensors.torch.save_file(edit(safetensors.torch.load_file(path)), path)
    return folder


def at_scales_of_their_own(folder, form):
    """The global scales of gate, up and down of an expert, and of experts, differ: gate's is the larger one of every other."""

    def edit(tensors):
        for i in range(COUNT):
            for part, factor in (("gate_proj", 2.0 if i % 2 else 0.5), ("down_proj", 1.0 + i)):
                tensors[f"{EXPERTS}.{i}.{part}.{FORMS[form]}"] *= factor
        return tensors

    return change(folder, edit)


def assert_same(got, expected):
    assert not isinstance(got, str), got
    assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_cold_load_and_a_live_reload_serve_what_the_oracle_says(form, tp, made, load):
    old, new = made(form, "b"), at_scales_of_their_own(made(form), form)
    for rank in range(tp):
        expected = quantized_checkpoints.served_tensors(new, form, tp, rank, "nvfp4")
        assert_same(load(new, tp, rank, "nvfp4"), expected)
        assert_same(load(new, tp, rank, "nvfp4", "direct", f"before={old}"), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_whole_experts_on_each_rank(form, ranks, made, load):
    old, new = made(form, "b"), at_scales_of_their_own(made(form), form)
    for rank in range(ranks):
        expected = quantized_checkpoints.with_whole_experts(new, form, ranks, rank, "nvfp4")
        assert_same(load(new, ranks, rank, "nvfp4", "experts", "direct"), expected)
        assert_same(load(new, ranks, rank, "nvfp4", "experts", f"before={old}"), expected)


def test_the_part_of_the_larger_global_scale_keeps_its_bytes(made, load):
    folder = at_scales_of_their_own(made("nvfp4"), "nvfp4")
    own, served = oracle.read_tensors(folder), load(folder, 1, 0, "nvfp4")
    scales = {part: [own[f"{EXPERTS}.{i}.{part}_proj.weight_scale_2"].item() for i in range(COUNT)]
              for part in ("gate", "up", "down")}
    assert served[f"{EXPERTS}.w13_weight_scale_2"].tolist() == [max(pair) for pair in zip(scales["gate"], scales["up"])]
    assert served[f"{EXPERTS}.w2_weight_scale_2"].tolist() == scales["down"]
    larger = ["gate" if gate > up else "up" for gate, up in zip(scales["gate"], scales["up"])]
    assert set(larger) == {"gate", "up"}
    for i, part in enumerate(larger):
        for suffix in ("weight", "weight_scale"):
            stack, tensor = (value.view(torch.uint8) for value in (served[f"{EXPERTS}.w13_{suffix}"],
                                                                   own[f"{EXPERTS}.{i}.{part}_proj.{suffix}"]))
            gate, up = stack[i].chunk(2)
            assert (gate if part == "gate" else up).equal(tensor)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("words", [(), ("direct",)])
def test_experts_have_one_scale_of_activations_for_each_of_their_weights(form, words, made, load):
    holds, folder = ("input_scales",), made(form)
    for rank in range(2):
        expected = quantized_checkpoints.served_tensors(folder, form, 2, rank, "nvfp4", holds)
        assert_same(load(folder, 2, rank, "nvfp4", *holds, *words), expected)
        expected = quantized_checkpoints.with_whole_experts(folder, form, 2, rank, "nvfp4", holds)
        assert_same(load(folder, 2, rank, "nvfp4", "experts", *holds, *words), expected)


@pytest.mark.parametrize("form", FORMS)
def test_names_of_mixtral_mean_the_same(form, made, load):
    folder = made(form)
    expected = quantized_checkpoints.served_tensors(folder, form, 2, 1, "nvfp4")

    def renamed(tensors):
        for name in [name for name in tensors if ".experts." in name]:
            other = name
            for own, mixtral in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")):
                other = other.replace(f".{own}.", f".{mixtral}.")
            tensors[other] = tensors.pop(name)
        return tensors

    assert_same(load(change(folder, renamed), 2, 1, "nvfp4", "direct"), expected)


@pytest.mark.parametrize("form, suffix, expected", [
    ("nvfp4", "weight", "{name}.weight"), ("nvfp4 packed", "weight_packed", "{name}.weight"),
    ("nvfp4", "weight_scale", "'{name}.weight_scale', are missing"),
    ("nvfp4", "weight_scale_2", "'{name}.weight_scale_2', are missing"),
    ("nvfp4 packed", "weight_global_scale", "'{name}.weight_global_scale', are missing")])
@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
def test_what_is_missing_is_named(form, suffix, expected, part, made, load):
    name = f"{EXPERTS}.3.{part}"

    def without(tensors):
        del tensors[f"{name}.{suffix}"]
        return tensors

    message = load(change(made(form), without), 2, 1, "nvfp4")
    assert expected.format(name=name) in message, message


@pytest.mark.parametrize("form, suffix, edit, expected", [
    ("nvfp4", "weight_scale_2", lambda scale: -scale, "expected a finite scale that is not negative, got -"),
    ("nvfp4 packed", "weight_global_scale", lambda scale: scale * 0, "expected a finite number above zero"),
    ("nvfp4", "weight_scale", lambda scale: scale[:, :3].clone(), "expected [256, 16] f8_e4m3, got [256, 3] f8_e4m3")])
def test_scales_that_cannot_be_are_named_with_the_expert(form, suffix, edit, expected, made, load):
    name = f"{EXPERTS}.3.up_proj.{suffix}"
    folder = change(made(form), lambda tensors: {**tensors, name: edit(tensors[name])})
    message = load(folder, 2, 0, "nvfp4")
    assert name in message and expected in message, message
