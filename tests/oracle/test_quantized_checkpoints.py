"""FP8, MXFP8, INT8 and NVFP4 checkpoints in every form, against the oracle byte for byte: served as they are, brought to one scale, refused
with the numbers, or dequantized and quantized anew."""

import json

import pytest
import safetensors.torch
import torch

import oracle
import quantized_checkpoints
import recipes
from quantized_checkpoints import FORMS


@pytest.fixture
def made(checkpoint, tmp_path):
    return lambda form: quantized_checkpoints.make(checkpoint("qwen3_wide", "a"), tmp_path / "checkpoint", form)


def assert_served(load, folder, form, tp, recipe, *words, way="path"):
    for rank in range(tp):
        expected = quantized_checkpoints.served_tensors(folder, form, tp, rank, recipe)
        got = load(folder, tp, rank, recipe, *words, way=way)
        assert not isinstance(got, str), got
        assert oracle.differences(got, expected) == []


def edit_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("words", [("direct",), ()])
@pytest.mark.parametrize("form", FORMS)
def test_what_fits_is_served_as_it_is(form, words, made, load):
    folder = made(form)
    recipe = FORMS[form].recipe
    for tp in (1,) if recipe == "fp8_per_block" else (1, 2, 4):
        assert_served(load, folder, form, tp, recipe, *words)


@pytest.fixture
def made_experts(checkpoint, tmp_path):
    return lambda form: quantized_checkpoints.make(checkpoint("deepseek_v3_wide", "a"), tmp_path / "checkpoint", form)


@pytest.mark.parametrize("form", ["deepseek", "deepseek without experts", "compressed channels", "modelopt channels",
                                  "modelopt blocks", "modelopt mxfp8", "int8 channels"])
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


def test_experts_that_cannot_be_served_as_they_are_are_refused_with_the_numbers(made_experts, load):
    message = load(made_experts("deepseek"), 4, 1, "fp8_per_block")
    for part in ("model.layers.1.mlp.experts", "blocks of 128 rows of 'gate_proj'", "4 ranks", "64 to 128 of 256"):
        assert part in message


def stacked(folder, names):
    """The same experts, each kind in one tensor; names(kind, suffix) calls it."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    apart = {name: tensors.pop(name) for name in list(tensors) if ".experts." in name}
    module = "model.layers.1.mlp.experts"
    for suffix in {name.rpartition(".")[2] for name in apart} - {"input_scale"}:
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


def test_experts_of_which_some_are_ignored_are_refused_naming_one_of_each(made_experts, load):
    folder = made_experts("deepseek")
    ignored = ["lm_head", "*.mlp.experts.4.*"]
    edit_config(folder, lambda config: config["quantization_config"].update(modules_to_not_convert=ignored))
    message = load(folder, 1, 0, "fp8_per_block")
    for part in ("some but not all parts of model.layers.1.mlp.experts", "model.layers.1.mlp.experts.0.gate_proj is,",
                 "model.layers.1.mlp.experts.4.gate_proj is ignored"):
        assert part in message


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


@pytest.mark.parametrize("form", ["deepseek", "compressed blocks", "compressed channels", "int8 channels"])
def test_an_iterator_may_carry_codes_and_scales(form, made, load):
    assert_served(load, made(form), form, 1, FORMS[form].recipe, way="iterator")


def test_a_block_that_straddles_ranks_is_refused_with_the_numbers(made, load):
    message = load(made("deepseek"), 2, 1, "fp8_per_block")
    for part in ("model.layers.0.mlp.gate_up_proj", "blocks of 128 rows of 'gate_proj'", "2 ranks", "192 to 384 of 384"):
        assert part in message


def test_another_recipe_is_refused_unless_asked_for(made, load):
    message = load(made("deepseek"), 1, 0, "none")
    assert "expected weights for none, got codes of fp8_per_block" in message and "requantize" in message


def test_one_scale_of_a_part_alone_is_refused_where_parts_come_one_by_one(made, load):
    message = load(made("fp8"), 1, 0, "fp8_per_tensor", way="iterator")
    assert "model.layers.0.self_attn.qkv_proj" in message and "one scale of the whole fused layer" in message


def test_a_missing_scale_is_named(made, load):
    folder = made("deepseek")
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight_scale_inv"]
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    assert "'model.layers.1.mlp.up_proj.weight_scale_inv', are missing" in load(folder, 1, 0, "fp8_per_block")


@pytest.mark.parametrize("form, suffixes", [
    ("compressed tensors", ("weight", "weight_scale")), ("nvfp4", ("weight", "weight_scale", "weight_scale_2")),
    ("nvfp4 packed", ("weight_packed", "weight_scale", "weight_global_scale"))])
def test_a_missing_part_of_a_fused_layer_with_one_scale_is_named(form, suffixes, made, load):
    folder, layer = made(form), "model.layers.1.self_attn"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    for suffix in suffixes:
        del tensors[f"{layer}.k_proj.{suffix}"]
    del tensors[f"{layer}.v_proj.{suffixes[0]}"]
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    names = [f"'{layer}.k_proj.{suffix}'" for suffix in suffixes] + [f"'{layer}.v_proj.{suffixes[0]}'"]
    for recipe, words in ((FORMS[form].recipe, ()), ("none", ("requantize",))):
        message = load(folder, 2, 1, recipe, *words)
        assert message.endswith(f"layer {layer}.qkv_proj: '{layer}.q_proj.{suffixes[0]}' is there without {', '.join(names)}\n")


def test_a_scale_of_another_shape_is_refused(made, load):
    folder = made("deepseek")
    name = "model.layers.1.mlp.up_proj.weight_scale_inv"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors[name] = torch.ones(3, 3)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    for recipe, words in (("fp8_per_block", ()), ("none", ("requantize",))):
        message = load(folder, 1, 0, recipe, *words)
        assert name in message and "[3, 2]" in message and "[3, 3]" in message


def test_a_scale_that_never_came_is_refused(made, load):
    folder = made("fp8")
    name = "model.layers.1.self_attn.k_proj.weight_scale"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors[name] = torch.tensor(torch.finfo(torch.float32).min)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    message = load(folder, 1, 0, "fp8_per_tensor")
    assert name in message and "expected finite scales that are not negative, got -3402" in message


@pytest.mark.parametrize("form, recipe, suffix", [
    ("compressed channels", "fp8_per_channel", "weight_scale"), ("deepseek", "fp8_per_block", "weight_scale_inv"),
    ("int8 channels", "int8_per_channel", "weight_scale"), ("nvfp4", "nvfp4", "weight_scale"),
    ("nvfp4", "nvfp4", "weight_scale_2")])
@pytest.mark.parametrize("words", [(), ("direct",)])
def test_a_scale_that_is_copied_is_not_negative(form, recipe, suffix, words, made, load):
    folder = made(form)
    name = f"model.layers.1.mlp.down_proj.{suffix}"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    negative = tensors[name].float().clone()
    negative.view(-1)[-1] *= -1.0
    tensors[name] = negative.to(tensors[name].dtype)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    message = load(folder, 1, 0, recipe, *words)
    assert "layer model.layers.1.mlp.down_proj: " in message and name in message
    assert "not negative, got -" in message


def test_powers_of_two_are_served_as_they_are_where_the_config_says_that_they_are(made, load):
    folder = made("deepseek")
    message = load(folder, 1, 0, "fp8_per_block", "pow2")
    assert "expected scales that are powers of two" in message
    edit_config(folder, lambda config: config["quantization_config"].update(scale_fmt="ue8m0"))
    assert_served(load, folder, "deepseek", 1, "fp8_per_block", "pow2")


def test_a_nan_among_the_codes_is_refused(made, load):
    folder = made("deepseek")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors[name].view(torch.uint8)[5, 7] = 0x7F
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    assert "corrupt" in load(folder, 1, 0, "fp8_per_block")


def test_codes_without_a_quantization_config_are_refused(made, load):
    folder = made("deepseek")
    edit_config(folder, lambda config: config.pop("quantization_config"))
    assert "config.json gives this layer no quantized form" in load(folder, 1, 0, "fp8_per_block")


@pytest.mark.parametrize("form, entries, layers", [
    ("modelopt", ["model.layers.0.self_attn.o_proj"],
     {"self_attn.o_proj": "model.layers.0.self_attn.o_proj (by its entry 'model.layers.0.self_attn.o_proj')"}),
    ("modelopt", ["*layers.0.mlp*"],
     {"mlp.down_proj": "model.layers.0.mlp.down_proj (by its entry '*layers.0.mlp*')",
      "mlp.gate_up_proj": "model.layers.0.mlp.gate_up_proj (by its entry '*layers.0.mlp*')"}),
    ("modelopt's file", [f"model.layers.0.self_attn.{part}_proj" for part in "qkv"],
     {"self_attn.qkv_proj": "model.layers.0.self_attn.q_proj (by its entry 'model.layers.0.self_attn.q_proj') and all "
                            "others of its parts"}),
    ("compressed channels", ["re:.*\\.1\\.self_attn", "lm_head", "re:.*layers\\.0\\.self_attn\\.[qkv]_proj"],
     {"self_attn.o_proj": "model.layers.1.self_attn.o_proj (by its entry 're:.*\\.1\\.self_attn')"})])
def test_codes_of_a_layer_that_is_left_out_are_refused_naming_the_entry(form, entries, layers, made, load):
    folder = made(form)
    path, key = ("config.json", "quantization_config")
    if FORMS[form].own_file:
        path, key = ("hf_quant_config.json", "quantization")
    config = json.loads((folder / path).read_text())
    left_out = "ignore" if "ignore" in config[key] else "exclude_modules"
    config[key][left_out] = entries + (config[key][left_out] if form == "modelopt" else [])
    (folder / path).write_text(json.dumps(config))
    said_by = "hf_quant_config.json: quantization" if FORMS[form].own_file else "quantization_config"
    for words in ((), ("requantize",)):
        message = load(folder, 1, 0, FORMS[form].recipe, *words)
        assert "these layers are codes that nothing says how to read:" in message, message
        for layer, why in layers.items():
            assert any(line.lstrip().startswith("layer model.layers.") and f".{layer}: '" in line
                       and f"this layer no quantized form: {said_by} leaves out {why}" in line
                       for line in message.splitlines()), message


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


@pytest.mark.parametrize("form, suffix, change, refusal", [
    ("nvfp4", "weight_scale_2", lambda scale: None, "'{name}', are missing"),
    ("nvfp4", "weight_scale_2", lambda scale: -scale, "expected a finite scale that is not negative, got -"),
    ("nvfp4", "weight_scale_2", lambda scale: scale.expand(2).clone(), "expected [1] f32, got [2] f32"),
    ("nvfp4", "weight_scale", lambda scale: scale[:, :3].clone(), "expected [{rows}, 16] f8_e4m3, got [{rows}, 3] f8_e4m3"),
    ("nvfp4", "weight_scale", lambda scale: scale.float(), "expected [{rows}, 16] f8_e4m3, got [{rows}, 16] f32"),
    ("nvfp4 packed", "weight_global_scale", lambda scale: None, "'{name}', are missing"),
    ("nvfp4 packed", "weight_global_scale", lambda scale: scale * 0, "expected a finite number above zero"),
    ("nvfp4 packed", "weight_scale", lambda scale: scale.view(torch.uint8), "expected [{rows}, 16] f8_e4m3, got [")])
def test_scales_of_nvfp4_that_cannot_be_are_refused(form, suffix, change, refusal, made, load):
    folder, name = made(form), f"model.layers.1.self_attn.k_proj.{suffix}"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    rows = len(tensors["model.layers.1.self_attn.k_proj.weight_scale"])
    tensors[name] = change(tensors[name])
    safetensors.torch.save_file({key: value for key, value in tensors.items() if value is not None},
                                folder / "model.safetensors")
    for recipe, words in (("nvfp4", ()), ("none", ("requantize",))):
        message = load(folder, 1, 0, recipe, *words)
        assert "model.layers.1.self_attn" in message and refusal.format(name=name, rows=rows) in message, message


@pytest.mark.parametrize("form", ["nvfp4", "nvfp4 packed"])
def test_a_nan_among_the_scales_of_nvfp4_is_refused(form, made, load):
    folder = made(form)
    for part in ("k_proj", "o_proj"):
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        tensors[f"model.layers.1.self_attn.{part}.weight_scale"].view(torch.uint8)[3, 1] = 0x7F
        (folder / part).mkdir()
        safetensors.torch.save_file(tensors, folder / part / "model.safetensors")
        (folder / part / "config.json").write_bytes((folder / "config.json").read_bytes())
        assert "corrupt" in load(folder / part, 1, 0, "nvfp4")
        assert "corrupt" in load(folder / part, 1, 0, "none", "requantize")


@pytest.mark.parametrize("form, scale, change, refusal", [
    ("modelopt mxfp8", "[256, 16] u8", lambda scale: None, "'{name}', are missing"),
    ("modelopt mxfp8", "[256, 16] u8", lambda scale: scale[:, :3].clone(), "expected {scale}, got [256, 3] u8"),
    ("modelopt mxfp8", "[256, 16] u8", lambda scale: scale.float(), "expected {scale}, got [256, 16] f32"),
    ("modelopt blocks", "[2, 4] f32", lambda scale: scale[:1].clone(), "expected {scale}, got [1, 1, 4, 1] f32"),
    ("modelopt blocks", "[2, 4] f32", lambda scale: scale.reshape(4, 1, 2, 1), "expected {scale}, got [4, 1, 2, 1] f32")])
def test_scales_of_modelopts_blocks_that_cannot_be_are_refused(form, scale, change, refusal, made, load):
    folder, name = made(form), "model.layers.0.self_attn.o_proj.weight_scale"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors[name] = change(tensors[name])
    safetensors.torch.save_file({key: value for key, value in tensors.items() if value is not None},
                                folder / "model.safetensors")
    for recipe, words in ((FORMS[form].recipe, ()), ("none", ("requantize",))):
        message = load(folder, 1, 0, recipe, *words)
        assert name in message and refusal.format(name=name, scale=scale) in message, message


@pytest.mark.parametrize("part", ["k_proj", "o_proj"])
def test_an_exponent_of_mxfp8_that_is_nan_is_refused(part, made, load):
    folder, name = made("modelopt mxfp8"), f"model.layers.1.self_attn.{part}.weight_scale"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors[name][3, 1] = 255
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    for words in ((), ("direct",)):
        message = load(folder, 1, 0, "mxfp8", *words)
        assert "layer model.layers.1.self_attn" in message and "expected powers of two, got NaN at element" in message
    message = load(folder, 1, 0, "none", "requantize")
    assert f"'{name}': expected finite scales that are not negative, got nan at element" in message, message


def test_a_block_of_modelopts_that_straddles_ranks_is_refused_with_the_numbers(made, load):
    message = load(made("modelopt blocks"), 2, 1, "fp8_per_block")
    for part in ("model.layers.0.mlp.gate_up_proj", "blocks of 128 rows of 'gate_proj'", "2 ranks", "192 to 384 of 384"):
        assert part in message


@pytest.mark.parametrize("form, change, refusal", [
    ("nvfp4", lambda config: config["quantization_config"].update(group_size=32),
     "quantization_config.group_size: expected 16, got 32"),
    ("nvfp4", lambda config: config["quantization_config"].update(quant_algo="W4A16_AWQ"),
     "quantization_config.quant_algo: expected 'FP8', 'FP8_PER_CHANNEL_PER_TOKEN', 'FP8_PB_WO', 'MXFP8' or 'NVFP4', "
     "got \"W4A16_AWQ\""),
    ("nvfp4 packed", lambda config: weights_of_group(type="int")(config), ".num_bits: expected 8, got 4"),
    ("nvfp4 packed", lambda config: weights_of_group(strategy="group")(config),
     ".strategy: expected 'tensor_group' of e2m1, got \"group\"")])
def test_four_bits_of_another_form_are_refused_naming_the_field(form, change, refusal, made, load):
    folder = made(form)
    edit_config(folder, change)
    message = load(folder, 1, 0, "nvfp4")
    assert refusal in message and "layer model.layers." in message, message


def test_what_config_json_says_goes_before_modelopts_file(made, load):
    folder = made("modelopt")
    other = {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    (folder / "hf_quant_config.json").write_text(json.dumps(other))
    assert_served(load, folder, "modelopt", 1, "fp8_per_tensor")


@pytest.mark.parametrize("text", ["[]", "{}", "{"])
def test_modelopts_file_that_says_nothing_is_refused_by_its_name(text, made, load):
    folder = made("modelopt's file")
    (folder / "hf_quant_config.json").write_text(text)
    message = load(folder, 1, 0, "fp8_per_tensor")
    assert "hf_quant_config.json: expected a JSON object with the field 'quantization'" in message, message


def test_one_global_scale_of_a_part_alone_is_refused_where_parts_come_one_by_one(made, load):
    message = load(made("nvfp4"), 1, 0, "nvfp4", way="iterator")
    assert "model.layers.0.self_attn.qkv_proj" in message and "one scale of the whole fused layer" in message


def weights_of_group(**fields):
    """Changes how the one group's weights are quantized."""
    def change(config):
        config["quantization_config"]["config_groups"]["group_0"]["weights"].update(fields)

    return change


GROUP = "quantization_config.config_groups.group_0"


@pytest.mark.parametrize("change, refusal", [
    (weights_of_group(symmetric=False), f"{GROUP}.weights.symmetric: expected true, got false"),
    (weights_of_group(strategy="group", group_size=128),
     f"{GROUP}.weights.strategy: expected 'channel' of 8-bit integers, got \"group\""),
    (weights_of_group(num_bits=4), f"{GROUP}.weights.num_bits: expected 8, got 4"),
    (weights_of_group(type=None), f"{GROUP}.weights.type: expected 'float' or 'int', got null"),
    (lambda config: config["quantization_config"].update(format="pack-quantized"),
     "quantization_config.format: expected 'int-quantized', a code in a byte, got \"pack-quantized\""),
    (weights_of_group(type="float"), "config.json says that its codes are f8_e4m3")])
def test_integers_of_another_form_are_refused_naming_the_field(change, refusal, made, load):
    folder = made("int8 channels")
    edit_config(folder, change)
    for words in ((), ("requantize",)):
        message = load(folder, 1, 0, "int8_per_channel", *words)
        assert refusal in message and "layer model.layers." in message, message


@pytest.mark.parametrize("change, refusal", [
    (lambda scale: None, "'{name}', are missing"),
    (lambda scale: scale[:100].clone(), "[256, 1]"),
    (lambda scale: scale.expand(-1, 2).clone(), "[256, 2]"),
    (lambda scale: scale.to(torch.int8), "{name}")])
def test_scales_of_integers_that_cannot_be_are_refused(change, refusal, made, load):
    folder, name = made("int8 channels"), "model.layers.1.self_attn.o_proj.weight_scale"
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors[name] = change(tensors[name])
    safetensors.torch.save_file({key: value for key, value in tensors.items() if value is not None},
                                folder / "model.safetensors")
    for recipe, words in (("int8_per_channel", ()), ("none", ("requantize",))):
        message = load(folder, 1, 0, recipe, *words)
        assert name in message and refusal.format(name=name) in message, message


def test_a_fused_layer_of_which_a_part_is_ignored_is_refused(made, load):
    folder = made("deepseek")
    ignored = ["model.layers.0.self_attn.k_proj"]
    edit_config(folder, lambda config: config["quantization_config"].update(modules_to_not_convert=ignored))
    message = load(folder, 1, 0, "fp8_per_block")
    assert "some but not all parts of model.layers.0.self_attn.qkv_proj" in message


@pytest.fixture
def mxfp4(checkpoint, tmp_path):
    return quantized_checkpoints.make_mxfp4(checkpoint("gpt_oss_blocks", "a"), tmp_path / "mxfp4")


@pytest.mark.parametrize("recipe", [recipe for recipe in recipes.RECIPES if recipe != "mxfp4"])
def test_mxfp4_experts_are_unpacked_if_asked_for(recipe, mxfp4, load):
    packed, plain = mxfp4
    for tp in (1, 2, 4):
        for rank in range(tp):
            expected = quantized_checkpoints.with_experts_alone_quantized(plain, tp, rank, recipe)
            got = load(packed, tp, rank, recipe, "requantize", *(("direct",) if rank % 2 else ()))
            assert not isinstance(got, str), got
            assert oracle.differences(got, expected) == []


def test_mxfp4_experts_are_served_as_they_are(mxfp4, load):
    packed, plain = mxfp4
    for tp in (1, 2, 4):
        for rank in range(tp):
            expected = quantized_checkpoints.with_experts_in_blocks(packed, plain, tp, rank)
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
