"""FP8, MXFP8, INT8 and NVFP4 checkpoints in every form, against the oracle byte for byte: served as they are, brought to one scale, or
dequantized and quantized anew."""

import json

import pytest
import safetensors.torch
import torch

import oracle
import quantized_checkpoints
import recipes
from quantized_checkpoints import assert_served
from quantized_forms import FORMS, edit_config


@pytest.mark.parametrize("words", [("direct",), ()])
@pytest.mark.parametrize("form", FORMS)
def test_what_fits_is_served_as_it_is(form, words, made, load):
    folder = made(form)
    recipe = FORMS[form].recipe
    for tp in (1,) if recipe == "fp8_per_block" else (1, 2, 4):
        assert_served(load, folder, form, tp, recipe, *words)


@pytest.mark.parametrize("form", ["deepseek", "deepseek without experts", "compressed channels", "modelopt channels",
                                  "modelopt blocks", "modelopt mxfp8", "mxfp8", "compressed mxfp8",
                                  "int8 channels"])
def test_experts_and_latent_attention_are_served_as_they_are(form, made_experts, load):
    """W_UK_T and W_UV derive from the codes that are served."""
    folder = made_experts(form)
    for tp in (1, 2):
        assert_served(load, folder, form, tp, FORMS[form].recipe, "direct")
    shapes = {"modelopt channels": ("[256, 1]", "[256]"), "modelopt blocks": ("[2, 2]", "[2, 1, 2, 1]")}
    if form in shapes:  # from files alone
        expected, got = shapes[form]
        message = load(folder, 2, 0, FORMS[form].recipe, way="iterator")
        assert f"expected {expected} f32, got {got} f32" in message, message
    else:
        assert_served(load, folder, form, 2, FORMS[form].recipe, way="iterator")
    assert_served(load, folder, form, 4, "none", "requantize")


@pytest.mark.parametrize("form", ["modelopt blocks", "modelopt mxfp8"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_whole_experts_on_each_rank(form, ranks, made_experts, load):
    folder = made_experts(form)
    recipe = FORMS[form].recipe
    for rank in range(ranks if recipe == "mxfp8" or ranks == 2 else 0):  # other layers' blocks fit on two ranks
        expected = quantized_checkpoints.with_whole_experts(folder, form, ranks, rank, recipe)
        for words in ((), ("direct",)):
            got = load(folder, ranks, rank, recipe, "experts", *words)
            assert not isinstance(got, str), got
            assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("form", ["nvfp4", "nvfp4 packed"])
def test_experts_and_latent_attention_in_nvfp4(form, made_experts, load):
    folder = made_experts(form)
    for tp in (1, 2):
        assert_served(load, folder, form, tp, "nvfp4", "direct")
    assert_served(load, folder, form, 4, "none", "requantize")


def stacked(folder, names, left_alone=("input_scale",)):
    """The same experts, each kind in one tensor; names(kind, suffix) calls it."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    apart = {name: tensors.pop(name) for name in list(tensors) if ".experts." in name and not name.endswith(left_alone)}
    module = "model.layers.1.mlp.experts"
    for suffix in {name.rpartition(".")[2] for name in apart}:
        def of_all(kind):
            return torch.stack([apart[f"{module}.{i}.{kind}.{suffix}"].view(torch.uint8) for i in range(6)])

        for kind, stack in (("gate_up_proj", torch.cat([of_all("gate_proj"), of_all("up_proj")], dim=1)),
                            ("down_proj", of_all("down_proj"))):
            dtype = apart[f"{module}.0.down_proj.{suffix}"].dtype
            tensors[f"{module}.{names(kind, suffix)}"] = stack.view(dtype)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("form, names", [
    ("deepseek", lambda kind, suffix: kind if suffix == "weight" else f"{kind}_scale_inv"),  # as transformers has them
    ("compressed channels", lambda kind, suffix: f"{kind}.{suffix}"),
    ("int8 channels", lambda kind, suffix: f"{kind}.{suffix}"),
    ("compressed channels", lambda kind, suffix: kind if suffix == "weight" else f"{kind}_{suffix}")])
def test_experts_whose_codes_are_stacked_are_served_as_they_are(form, names, made_experts, load):
    folder = made_experts(form)
    expected = {(tp, rank): quantized_checkpoints.served_tensors(folder, form, tp, rank, FORMS[form].recipe)
                for tp in (1, 2) for rank in range(tp)}
    in_full_precision = quantized_checkpoints.served_tensors(folder, form, 1, 0, "none")
    stacked(folder, names)
    for (tp, rank), tensors in expected.items():
        for words, way in (((), "path"), (("direct",), "path"), ((), "iterator")):
            got = load(folder, tp, rank, FORMS[form].recipe, *words, way=way)
            assert not isinstance(got, str), got
            assert oracle.differences(got, tensors) == []
    got = load(folder, 1, 0, "none", "requantize")
    assert not isinstance(got, str), got
    assert oracle.differences(got, in_full_precision) == []


@pytest.mark.parametrize("form", ["deepseek", "transformers exponents"])
@pytest.mark.parametrize("recipe, words", [("fp8_per_block", ()), ("fp8_per_block", ("direct",)), ("none", ("requantize",)),
                                           ("fp8_per_channel", ("requantize", "direct"))])
def test_experts_one_by_one_may_have_stacked_scales(recipe, words, form, made_experts, load):
    """As transformers 5.23 saves what it quantized by FineGrainedFP8Config."""
    folder = made_experts(form)
    expected = {(tp, rank): quantized_checkpoints.served_tensors(folder, form, tp, rank, recipe)
                for tp in (1, 2) for rank in range(tp)}
    stacked(folder, lambda kind, suffix: f"{kind}_scale_inv", left_alone=(".weight",))
    for (tp, rank), tensors in expected.items():
        got = load(folder, tp, rank, recipe, *words)
        assert not isinstance(got, str), got
        assert oracle.differences(got, tensors) == []
    if recipe == "none" and form == "deepseek":
        path = folder / "model.safetensors"
        tensors = safetensors.torch.load_file(path)
        name = "model.layers.1.mlp.experts.gate_up_proj_scale_inv"
        safetensors.torch.save_file({**tensors, name: tensors[name][:, :3].clone()}, path)
        message = load(folder, 1, 0, recipe, *words)
        assert f"'{name}' expected scales [4, 2] of each expert" in message and "[6, 3, 2] f32" in message, message


@pytest.mark.parametrize("shape", [(), (1,), (6,)])
def test_one_scale_for_a_stack_of_experts_is_that_of_each(shape, checkpoint, tmp_path, load):
    """As ModelOpt has them: codes of all experts, and one number."""
    source = checkpoint("deepseek_v3_wide", "a")
    tensors = oracle.read_tensors(source)
    module = "model.layers.1.mlp.experts"

    def of_all(kind):
        return torch.stack([tensors.pop(f"{module}.{i}.{kind}.weight") for i in range(6)])

    coded, plain = {}, {}
    for name, stack in (("gate_up_proj", torch.cat([of_all("gate_proj"), of_all("up_proj")], dim=1)),
                        ("down_proj", of_all("down_proj"))):
        scale = stack.abs().amax().float() / recipes.FP8_MAX
        codes = (stack.float() / scale).to(torch.float8_e4m3fn)
        coded |= {f"{module}.{name}": codes, f"{module}.{name}_weight_scale": scale.expand(shape).clone()}
        plain[f"{module}.{name}"] = (codes.float() * scale).to(stack.dtype)
    config = oracle.read_config(source)
    for folder, own, more in (("coded", coded, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}),
                              ("plain", plain, {})):
        (tmp_path / folder).mkdir()
        safetensors.torch.save_file(tensors | own, tmp_path / folder / "model.safetensors")
        (tmp_path / folder / "config.json").write_text(json.dumps({**config, **more}))
    for tp, rank, recipe in ((1, 0, "none"), (2, 1, "fp8_per_channel"), (2, 0, "int8_per_channel")):
        got = load(tmp_path / "coded", tp, rank, recipe, "requantize", "direct")
        assert not isinstance(got, str), got
        assert oracle.differences(got, oracle.served_tensors(tmp_path / "plain", tp, rank, recipe)) == []
    for words in ((), ("direct",)):
        got = load(tmp_path / "coded", 1, 0, "fp8_per_tensor", *words)
        assert got[f"{module}.w2_weight_scale"].tolist() == coded[f"{module}.down_proj_weight_scale"].expand(6).tolist()
        assert got[f"{module}.w13_weight_scale"].tolist() == coded[f"{module}.gate_up_proj_weight_scale"].expand(6).tolist()
        for name, own in (("gate_up_proj", "w13_weight"), ("down_proj", "w2_weight")):
            assert oracle.raw_bytes(got[f"{module}.{own}"]).equal(oracle.raw_bytes(coded[f"{module}.{name}"]))
    coded[f"{module}.down_proj_weight_scale"] = torch.ones(3)
    safetensors.torch.save_file(tensors | coded, tmp_path / "coded" / "model.safetensors")
    message = load(tmp_path / "coded", 1, 0, "none", "requantize")
    assert f"layer {module}: '{module}.down_proj_weight_scale' expected [6, 1] f32, got [3] f32" in message


def test_blocks_that_fit_are_cut(made, load):
    folder = made("deepseek")  # on two ranks the MLP's do not, and are quantized anew
    assert_served(load, folder, "deepseek", 2, "fp8_per_block", "requantize")


@pytest.mark.parametrize("form, recipe, tp", [("deepseek", "none", 2), ("deepseek", "fp8_per_channel", 4),
                                              ("fp8", "fp8_per_block", 2), ("compressed channels", "nvfp4", 2),
                                              ("modelopt", "int8_per_channel", 2), ("int8 channels", "none", 2),
                                              ("int8 channels", "fp8_per_channel", 2), ("nvfp4", "none", 2),
                                              ("nvfp4 packed", "fp8_per_block", 2), ("modelopt blocks", "mxfp8", 2),
                                              ("modelopt mxfp8", "none", 2), ("modelopt mxfp8", "nvfp4", 4)])
def test_other_recipes_are_those_of_the_dequantized_weights(form, recipe, tp, made, load):
    assert_served(load, made(form), form, tp, recipe, "requantize", "direct")


@pytest.mark.parametrize("form", ["deepseek", "compressed blocks", "compressed channels", "int8 channels", "transformers"])
def test_an_iterator_may_carry_codes_and_scales(form, made, load):
    assert_served(load, made(form), form, 1, FORMS[form].recipe, way="iterator")


def test_powers_of_two_are_served_as_they_are_where_the_config_says_that_they_are(made, load):
    folder = made("deepseek")
    message = load(folder, 1, 0, "fp8_per_block", "pow2")
    assert "expected scales that are powers of two" in message
    edit_config(folder, lambda config: config["quantization_config"].update(scale_fmt="ue8m0"))
    assert_served(load, folder, "deepseek", 1, "fp8_per_block", "pow2")


def test_exponents_are_the_numbers_that_they_stand_for(made_experts, load):
    """From files alone."""
    form, folder = "transformers exponents", made_experts("transformers exponents")
    for tp, words in ((1, ()), (2, ("direct", "pow2"))):
        assert_served(load, folder, form, tp, "fp8_per_block", *words)
    assert_served(load, folder, form, 4, "none", "requantize")
    assert "f32, got [2, 2] f8_e8m0" in load(folder, 2, 0, "fp8_per_block", way="iterator")
    tensors = oracle.read_tensors(folder)
    name = "model.layers.1.self_attn.o_proj.weight_scale_inv"
    tensors[name].view(torch.uint8)[0, 1] = 255  # no number
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    for recipe, words in (("fp8_per_block", ()), ("none", ("requantize",))):
        assert name in load(folder, 1, 0, recipe, *words)


def served_of(folder, form, load):
    got = load(folder, 1, 0, FORMS[form].recipe)
    assert not isinstance(got, str), got
    return oracle.read_tensors(folder), got


def test_parts_in_nvfp4_of_one_global_scale_keep_their_bytes(made, load):
    own, got = served_of(made("nvfp4 packed"), "nvfp4 packed", load)
    layer = "model.layers.0.self_attn"
    for kind, suffix in (("weight_packed", "weight"), ("weight_scale", "weight_scale")):
        parts = [own[f"{layer}.{part}_proj.{kind}"].view(torch.uint8) for part in "qkv"]
        assert got[f"{layer}.qkv_proj.{suffix}"].view(torch.uint8).equal(torch.cat(parts))
    assert got[f"{layer}.o_proj.weight_scale_2"].equal(1.0 / own[f"{layer}.o_proj.weight_global_scale"])


def test_parts_in_nvfp4_of_other_global_scales_are_brought_to_the_largest(made, load):
    own, got = served_of(made("nvfp4"), "nvfp4", load)
    layer = "model.layers.0.self_attn"
    scales = {part: own[f"{layer}.{part}_proj.weight_scale_2"].item() for part in "qkv"}
    assert len(set(scales.values())) == 3
    assert got[f"{layer}.qkv_proj.weight_scale_2"].tolist() == [max(scales.values())]
    blocks = [own[f"{layer}.{part}_proj.weight_scale"].view(torch.uint8) for part in "qkv"]
    served = got[f"{layer}.qkv_proj.weight_scale"].view(torch.uint8).split([len(scale) for scale in blocks])
    for part, scale, at_largest in zip("qkv", blocks, served):
        assert at_largest.equal(scale) == (scales[part] == max(scales.values()))


def test_what_config_json_says_goes_before_modelopts_file(made, load):
    folder = made("modelopt")
    other = {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    (folder / "hf_quant_config.json").write_text(json.dumps(other))
    assert_served(load, folder, "modelopt", 1, "fp8_per_tensor")


@pytest.mark.parametrize("form, change", [
    ("nvfp4", lambda config: config.update(quant_algo="W4A16_NVFP4")),
    ("nvfp4 packed", lambda config: config["config_groups"]["group_0"].update(input_activations=None)),
    ("modelopt", lambda config: config.update(quant_method="modelopt_fp8"))])
def test_weights_are_the_same_whatever_is_said_of_activations(form, change, made, load):
    folder = made(form)
    edit_config(folder, lambda config: change(config["quantization_config"]))
    assert_served(load, folder, form, 2, FORMS[form].recipe, "direct")
