"""Experts in NVFP4, one by one under ModelOpt's or compressed-tensors' names, or stacked, against the oracle byte for byte: gate
and up of an expert are brought to the larger of their two global scales, down is served as it is."""

import json

import pytest
import safetensors.torch
import torch

import oracle
import quantized_checkpoints
import quantized_forms
import recipes

FORMS = {"nvfp4": "weight_scale_2", "nvfp4 packed": "weight_global_scale"}
EXPERTS = "model.layers.1.mlp.experts"
COUNT = 6


@pytest.fixture
def made(checkpoint, tmp_path):
    def make(form, version="a"):
        return quantized_forms.make(checkpoint("deepseek_v3_wide", version), tmp_path / f"{form} {version}", form)

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


STACKED = {
    "short": lambda kind, suffix: kind + suffix.removeprefix("weight"),
    "modelopt's": lambda kind, suffix: kind if suffix == "weight" else f"{kind}_{suffix}",
    "modules": lambda kind, suffix: f"{kind}.{suffix}",
    "an engine's": lambda kind, suffix: {"gate_up_proj": "w13", "down_proj": "w2"}[kind] + f"_{suffix}",
    "compressed-tensors'": lambda kind, suffix: f"{kind}.{PACKED[suffix]}",
    "compressed-tensors', of an engine": lambda kind, suffix: STACKED["an engine's"](kind, PACKED[suffix]),
}
PACKED = {"weight": "weight_packed", "weight_scale": "weight_scale", "weight_scale_2": "weight_global_scale"}


def stack(folder, form, names, shape=(COUNT,)):
    """The same experts in six tensors, as one rank would serve them; global scales in `shape`."""
    served = quantized_checkpoints.served_tensors(folder, form, 1, 0, "nvfp4")

    def edit(tensors):
        kept = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
        for own, kind in (("w13", "gate_up_proj"), ("w2", "down_proj")):
            for suffix in ("weight", "weight_scale", "weight_scale_2"):
                tensor = served[f"{EXPERTS}.{own}_{suffix}"]
                if suffix == "weight_scale_2" and shape != (COUNT,):
                    tensor = tensor[0].reshape(shape)
                name = STACKED[names](kind, suffix)
                kept[f"{EXPERTS}.{name}"] = 1.0 / tensor if name.endswith("global_scale") else tensor.clone()
        return kept

    return change(folder, edit)


@pytest.mark.parametrize("names", STACKED)
def test_experts_that_are_stacked_are_served_as_they_are(names, made, load):
    folder = at_scales_of_their_own(made("nvfp4"), "nvfp4")
    split = {(tp, rank): quantized_checkpoints.served_tensors(folder, "nvfp4", tp, rank, "nvfp4")
             for tp in (1, 2, 4) for rank in range(tp)}
    spread = [quantized_checkpoints.with_whole_experts(folder, "nvfp4", 4, rank, "nvfp4") for rank in range(4)]
    stack(folder, "nvfp4", names)
    if names.startswith("compressed"):  # whose reciprocals need not come back to the same number
        for expected in (*split.values(), *spread):
            for name in ("w13", "w2"):
                expected[f"{EXPERTS}.{name}_weight_scale_2"] = 1.0 / (1.0 / expected[f"{EXPERTS}.{name}_weight_scale_2"])
    for (tp, rank), expected in split.items():
        assert_same(load(folder, tp, rank, "nvfp4", *(("direct",) if rank % 2 else ())), expected)
    for rank, expected in enumerate(spread):
        assert_same(load(folder, 4, rank, "nvfp4", "experts", *(("direct",) if rank % 2 else ())), expected)


@pytest.mark.parametrize("names", ["modelopt's", "compressed-tensors'"])
@pytest.mark.parametrize("shape", [(), (1,), (COUNT,)])
def test_one_global_scale_for_a_stack_is_that_of_each_expert(shape, names, made, load):
    """All weights of this form have the same."""
    folder = made("nvfp4 packed")
    expected = {(tp, recipe): quantized_checkpoints.served_tensors(folder, "nvfp4 packed", tp, tp - 1, recipe)
                for tp in (1, 2) for recipe in ("nvfp4", "none", "fp8_per_channel")}
    stack(folder, "nvfp4 packed", names, shape)
    for (tp, recipe), tensors in expected.items():
        assert_same(load(folder, tp, tp - 1, recipe, *(() if recipe == "nvfp4" else ("requantize",))), tensors)


@pytest.fixture
def transposed(checkpoint, tmp_path):
    """GPT-OSS's experts: gate's rows and up's alternate, and rows are columns on disk. The checkpoint, and what is served of its
    experts by one rank."""
    source, folder, served = checkpoint("gpt_oss_blocks", "a"), tmp_path / "transposed", {}
    folder.mkdir()
    tensors = oracle.read_tensors(source)
    for name in [name for name in tensors if name.endswith((".experts.gate_up_proj", ".experts.down_proj"))]:
        coded = [recipes.quantize("nvfp4", w.mT.contiguous(), w.abs().amax(), None) for w in tensors.pop(name)]
        module, _, kind = name.rpartition(".")
        for suffix in ("weight", "weight_scale", "weight_scale_2"):
            stacked = torch.stack([codes[suffix].view(torch.uint8) for codes in coded]).view(coded[0][suffix].dtype)
            own = stacked.flatten() if suffix == "weight_scale_2" else stacked
            on_disk = own if own.dim() == 1 else own.view(torch.uint8).mT.contiguous().view(own.dtype)
            tensors[name + suffix.removeprefix("weight")] = on_disk
            if kind == "gate_up_proj" and own.dim() == 3:
                rows = own.view(torch.uint8)
                own = torch.cat([rows[:, 0::2], rows[:, 1::2]], dim=1).view(own.dtype)
            served[f"{module}.{'w13' if kind == 'gate_up_proj' else 'w2'}_{suffix}"] = own
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    form = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*self_attn*"]}
    (folder / "config.json").write_text(json.dumps({**oracle.read_config(source), "quantization_config": form}))
    return folder, served


@pytest.mark.parametrize("words", [(), ("direct",)])
def test_transposed_stacks_are_served_as_they_are(words, transposed, load):
    folder, served = transposed
    got = load(folder, 1, 0, "nvfp4", *words)
    assert not isinstance(got, str), got
    assert oracle.differences({name: got[name] for name in served}, served) == []
    halves = [load(folder, 2, rank, "nvfp4", *words) for rank in range(2)]
    for name, tensor in served.items():
        parts = [half[name].view(torch.uint8) for half in halves]
        if name.endswith("_scale_2"):
            assert all(part.equal(tensor.view(torch.uint8)) for part in parts)
        elif ".w2_" in name:
            assert torch.cat(parts, dim=2).equal(tensor.view(torch.uint8))
        else:
            gates, ups = zip(*(part.chunk(2, dim=1) for part in parts))
            assert torch.cat([*gates, *ups], dim=1).equal(tensor.view(torch.uint8))


@pytest.mark.parametrize("recipe", ["none", "fp8_per_channel"])
def test_transposed_stacks_are_dequantized_if_asked_for(recipe, transposed, tmp_path, load):
    """As a checkpoint of the dequantized weights is loaded."""
    folder, _ = transposed
    tensors, config = oracle.read_tensors(folder), oracle.read_config(folder)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        weight, scale, number = (tensors.pop(name + suffix) for suffix in ("", "_scale", "_scale_2"))
        served = {"weight": weight.mT.contiguous(), "weight_scale": scale.view(torch.uint8).mT.contiguous().view(scale.dtype),
                  "weight_scale_2": number}
        tensors[name] = recipes.dequantized(served, "weight").to(torch.bfloat16).mT.contiguous()
    plain = tmp_path / "plain"
    plain.mkdir()
    safetensors.torch.save_file(tensors, plain / "model.safetensors")
    (plain / "config.json").write_text(json.dumps(config))
    for tp, rank in ((1, 0), (2, 1)):
        expected = load(plain, tp, rank, recipe)
        assert not isinstance(expected, str), expected
        assert_same(load(folder, tp, rank, recipe, "requantize", "direct"), expected)


@pytest.mark.parametrize("suffix, edit, expected", [
    ("weight_scale", lambda scale: None, "its scales, '{name}', are missing"),
    ("weight_scale_2", lambda scale: None, "its scales, '{name}', are missing"),
    ("weight_scale_2", lambda scale: scale[:3].clone(), "expected [6] f32, got [3] f32"),
    ("weight_scale_2", lambda scale: -scale, "not negative, got -"),
    ("weight_scale", lambda scale: scale[:, :, :3].clone(), "expected [6, 256, 16] f8_e4m3, got [6, 256, 3] f8_e4m3")])
def test_scales_of_a_stack_that_cannot_be_are_named(suffix, edit, expected, made, load):
    name = f"{EXPERTS}.down_proj.{suffix}"

    def edited(tensors):
        other = edit(tensors.pop(name))
        return tensors if other is None else {**tensors, name: other}

    folder = change(stack(made("nvfp4"), "nvfp4", "modules"), edited)
    for recipe, words in (("nvfp4", ()), ("none", ("requantize",))):
        message = load(folder, 1, 0, recipe, *words)
        assert EXPERTS in message and expected.format(name=name) in message, message


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
    ("nvfp4", "weight_scale_2", lambda scale: -scale, "expected finite scales that are not negative, got -"),
    ("nvfp4 packed", "weight_global_scale", lambda scale: scale * 0, "expected a finite number above zero"),
    ("nvfp4", "weight_scale", lambda scale: scale[:, :3].clone(), "expected [256, 16] f8_e4m3, got [256, 3] f8_e4m3")])
def test_scales_that_cannot_be_are_named_with_the_expert(form, suffix, edit, expected, made, load):
    name = f"{EXPERTS}.3.up_proj.{suffix}"
    folder = change(made(form), lambda tensors: {**tensors, name: edit(tensors[name])})
    message = load(folder, 2, 0, "nvfp4")
    assert name in message and expected in message, message
