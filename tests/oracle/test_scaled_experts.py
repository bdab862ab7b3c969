"""Experts in FP8 whose tensors have one scale each, against the oracle byte for byte: gate and up of an expert are brought to
the larger of their two, down is served as it is."""

import pytest
import safetensors.torch
import torch

import oracle
import quantized_checkpoints
import quantized_forms

RECIPE = "fp8_per_tensor"
FORMS = ("fp8", "compressed tensors")  # scales of no dimension, and of one
EXPERTS = "model.layers.1.mlp.experts"
COUNT = 6


def make_of(checkpoint, folder, form, version):
    return quantized_forms.make(checkpoint("deepseek_v3_wide", version), folder, form)


@pytest.fixture
def made(checkpoint, tmp_path):
    return lambda form, version="a": make_of(checkpoint, tmp_path / f"{form} {version}", form, version)


def change(folder, edit):
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    safetensors.torch.save_file(edit(tensors), path)
    return folder


def assert_same(got, expected):
    assert not isinstance(got, str), got
    assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_cold_load_and_a_live_reload_serve_what_the_oracle_says(form, tp, made, load):
    old, new = made(form, "b"), made(form)
    for rank in range(tp):
        expected = quantized_checkpoints.served_tensors(new, form, tp, rank, RECIPE)
        assert_same(load(new, tp, rank, RECIPE), expected)
        assert_same(load(new, tp, rank, RECIPE, "direct", f"before={old}"), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_whole_experts_on_each_rank(form, ranks, made, load):
    old, new = made(form, "b"), made(form)
    for rank in range(ranks):
        expected = quantized_checkpoints.with_whole_experts(new, form, ranks, rank, RECIPE)
        assert_same(load(new, ranks, rank, RECIPE, "experts", "direct"), expected)
        assert_same(load(new, ranks, rank, RECIPE, "experts", f"before={old}"), expected)


def test_gate_and_up_have_the_larger_of_their_scales_and_it_is_not_always_the_same_ones(made, load):
    folder = made("fp8")
    own, served = oracle.read_tensors(folder), load(folder, 1, 0, RECIPE)
    scales = {kind: [own[f"{EXPERTS}.{i}.{kind}_proj.weight_scale"].item() for i in range(COUNT)]
              for kind in ("gate", "up", "down")}
    assert served[f"{EXPERTS}.w13_weight_scale"].tolist() == [max(pair) for pair in zip(scales["gate"], scales["up"])]
    assert served[f"{EXPERTS}.w2_weight_scale"].tolist() == scales["down"]
    larger = {gate > up for gate, up in zip(scales["gate"], scales["up"])}
    assert larger == {True, False}, scales


@pytest.mark.parametrize("words", [(), ("direct",)])
def test_experts_have_one_scale_of_activations_for_each_of_their_weights(words, made, load):
    holds, folder = ("input_scales",), made("fp8")
    for rank in range(2):
        expected = quantized_checkpoints.served_tensors(folder, "fp8", 2, rank, RECIPE, holds)
        assert_same(load(folder, 2, rank, RECIPE, *holds, *words), expected)
        expected = quantized_checkpoints.with_whole_experts(folder, "fp8", 2, rank, RECIPE, holds)
        assert_same(load(folder, 2, rank, RECIPE, "experts", *holds, *words), expected)


def test_the_order_of_gate_and_up_in_the_file_says_nothing(made, load):
    folder = made("fp8")
    expected = quantized_checkpoints.served_tensors(folder, "fp8", 2, 1, RECIPE)

    def swapped(tensors):  # up before gate
        return {name.replace(".gate_proj.", ".w1.") if ".experts." in name else name: tensors[name] for name in tensors}

    change(folder, swapped)
    assert sorted(name for name in oracle.read_tensors(folder) if f"{EXPERTS}.0." in name)[-1].endswith("w1.weight_scale")
    assert_same(load(folder, 2, 1, RECIPE, "direct"), expected)


def test_experts_without_a_gate_are_served_as_they_are(checkpoint, tmp_path, load):
    """Their names on disk are not those of the tree."""
    plain = checkpoint("nemotron_h_moe", "a")
    folder = quantized_forms.make(plain, tmp_path / "made", "compressed tensors")
    own = oracle.read_tensors(folder)
    names = [name for name in own if ".experts." in name and name.endswith("up_proj.weight")]
    assert names
    for words in ((), ("direct",)):
        served = load(folder, 1, 0, RECIPE, *words)
        assert not isinstance(served, str), served
        for name in names:
            module, _, expert = name.removesuffix(".up_proj.weight").replace("backbone.", "model.").rpartition(".")
            codes = served[f"{module}.w13_weight"][int(expert)]
            assert oracle.raw_bytes(codes).equal(oracle.raw_bytes(own[name]))
            scale = own[name.replace(".weight", ".weight_scale")].item()
            assert served[f"{module}.w13_weight_scale"][int(expert)].item() == scale


# Of gate and up as engines have them: one tensor, one scale.
FUSED = {
    "each": lambda kind, suffix: f"{{}}.{kind}.{suffix}",
    "stacked": lambda kind, suffix: kind if suffix == "weight" else f"{kind}_{suffix}",
    "stacked modules": lambda kind, suffix: f"{kind}.{suffix}",
    "an engine's": lambda kind, suffix: {"gate_up_proj": "w13", "down_proj": "w2"}[kind] + f"_{suffix}",
}


def fuse(folder, served, names, shape=None):
    """The same experts, in the form of `names`; scales of each in `shape`."""

    def edit(tensors):
        kept = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
        for own, kind in (("w13", "gate_up_proj"), ("w2", "down_proj")):
            for suffix in ("weight", "weight_scale"):
                name, stack = f"{EXPERTS}.{names(kind, suffix)}", served[f"{EXPERTS}.{own}_{suffix}"]
                if "{}" not in name:
                    kept[name] = stack
                    continue
                for i in range(COUNT):
                    one = stack[i] if suffix == "weight" else stack[i].reshape(shape)
                    kept[name.format(i)] = one.clone()
        return kept

    return change(folder, edit)


@pytest.mark.parametrize("names, shape", [*((name, ()) for name in FUSED), ("each", (1,))])
def test_experts_that_are_fused_already_are_served_as_they_are_in_any_order(names, shape, made, load):
    """From a trainer too."""
    folder = made("compressed tensors")
    served = quantized_checkpoints.served_tensors(folder, "compressed tensors", 1, 0, RECIPE)
    split = {(tp, rank): quantized_checkpoints.served_tensors(folder, "compressed tensors", tp, rank, RECIPE)
             for tp in (1, 2) for rank in range(tp)}
    spread = {rank: quantized_checkpoints.with_whole_experts(folder, "compressed tensors", 4, rank, RECIPE)
              for rank in (1, 3)}

    def others_fused(tensors):
        """Dense layers whose parts have a scale each would be refused."""
        parts = (".gate_proj.", ".up_proj.", ".q_a_proj.", ".kv_a_proj_with_mqa.")
        kept = {name: tensor for name, tensor in tensors.items() if not any(part in name for part in parts)}
        return kept | {name: tensor for name, tensor in served.items()
                       if ".gate_up_proj." in name or ".fused_qkv_a_proj." in name}

    change(fuse(folder, served, FUSED[names], shape), others_fused)
    for (tp, rank), expected in split.items():
        for words, way in (((), "path"), (("direct",), "path"), (("shuffled=3",), "iterator"),
                           (("shuffled=4", "direct"), "iterator")):
            assert_same(load(folder, tp, rank, RECIPE, *words, way=way), expected)
    for rank, expected in spread.items():
        for words, way in ((("direct",), "path"), (("shuffled=5",), "iterator")):
            assert_same(load(folder, 4, rank, RECIPE, "experts", *words, way=way), expected)


def test_other_recipes_are_those_of_the_dequantized_weights(made, load):
    folder = made("fp8")
    assert "expected weights for fp8_per_channel, got codes of fp8_per_tensor" in load(folder, 1, 0, "fp8_per_channel")
    expected = quantized_checkpoints.served_tensors(folder, "fp8", 2, 1, "fp8_per_channel")
    assert_same(load(folder, 2, 1, "fp8_per_channel", "requantize", "direct"), expected)


@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
def test_what_is_missing_is_named(part, made, load):
    name = f"{EXPERTS}.3.{part}"
    folder = made("fp8")
    whole = oracle.read_tensors(folder)

    def message_without(*missing):
        change(folder, lambda _: {key: tensor for key, tensor in whole.items() if key not in missing})
        return load(folder, 2, 1, RECIPE)

    assert f"and its scales, '{name}.weight_scale', are missing" in message_without(f"{name}.weight_scale")
    other = {"gate_proj": "up_proj", "up_proj": "gate_proj"}.get(part)
    if other is None:
        assert f"1 missing. Following weights were not initialized from checkpoint: {name}.weight\n" in (
            message_without(f"{name}.weight"))
        return
    there = f"layer {EXPERTS}: '{EXPERTS}.3.{other}.weight' is there without "
    assert message_without(f"{name}.weight").endswith(f"{there}'{name}.weight'\n")
    assert message_without(f"{name}.weight", f"{name}.weight_scale").endswith(
        f"{there}'{name}.weight', '{name}.weight_scale'\n")


def test_every_expert_that_lacks_a_part_is_named(made, load):
    whole = oracle.read_tensors(folder := made("compressed tensors"))
    change(folder, lambda _: {key: tensor for key, tensor in whole.items() if ".experts." not in key or ".up_" not in key})
    message = load(folder, 2, 1, RECIPE)
    lines = [f"  layer {EXPERTS}: '{EXPERTS}.{i}.gate_proj.weight' is there without '{EXPERTS}.{i}.up_proj.weight', "
             f"'{EXPERTS}.{i}.up_proj.weight_scale'" for i in range(COUNT)]
    assert message.splitlines() == ["invalid_argument: parts of these layers are missing:", *lines], message


@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
def test_scales_that_cannot_be_are_named_with_the_expert(part, made, load):
    name = f"{EXPERTS}.3.{part}.weight_scale"
    folder = made("fp8")
    whole = oracle.read_tensors(folder)
    for scale, expected in ((torch.ones(3), "expected [1] f32, got [3] f32"),
                            (torch.tensor(float("nan")), "expected finite values, got NaN")):
        change(folder, lambda _: {**whole, name: scale})
        message = load(folder, 2, 0, RECIPE)
        assert name in message and expected in message


@pytest.mark.parametrize("part", ["gate_proj", "up_proj"])
def test_a_scale_that_never_came_is_refused(part, made, load):
    name = f"{EXPERTS}.5.{part}.weight_scale"
    folder = change(made("fp8"), lambda tensors: {**tensors, name: torch.tensor(torch.finfo(torch.float32).min)})
    message = load(folder, 1, 0, RECIPE)
    assert f"layer {EXPERTS}: '{name}': expected finite scales that are not negative, got -3402" in message
