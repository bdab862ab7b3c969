"""What of a quantized checkpoint cannot be served, or not as it is, and how it is refused: naming layer, tensor, field and numbers."""

import json

import pytest
import safetensors.torch
import torch

from quantized_forms import FORMS, edit_config


def test_experts_that_cannot_be_served_as_they_are_are_refused_with_the_numbers(made_experts, load):
    message = load(made_experts("deepseek"), 4, 1, "fp8_per_block")
    for part in ("model.layers.1.mlp.experts", "blocks of 128 rows of 'gate_proj'", "4 ranks", "64 to 128 of 256"):
        assert part in message


def test_experts_of_which_some_are_ignored_are_refused_naming_one_of_each(made_experts, load):
    folder = made_experts("deepseek")
    ignored = ["lm_head", "*.mlp.experts.4.*"]
    edit_config(folder, lambda config: config["quantization_config"].update(modules_to_not_convert=ignored))
    message = load(folder, 1, 0, "fp8_per_block")
    for part in ("some but not all parts of model.layers.1.mlp.experts", "model.layers.1.mlp.experts.0.gate_proj is,",
                 "model.layers.1.mlp.experts.4.gate_proj is ignored"):
        assert part in message


def test_a_block_that_straddles_ranks_is_refused_with_the_numbers(made, load):
    message = load(made("deepseek"), 2, 1, "fp8_per_block")
    for part in ("model.layers.0.mlp.gate_up_proj", "blocks of 128 rows of 'gate_proj'", "2 ranks", "192 to 384 of 384"):
        assert part in message


def test_another_recipe_is_refused_unless_asked_for(made, load):
    message = load(made("deepseek"), 1, 0, "none")
    assert "expected weights for none, got codes of fp8_per_block" in message and "requantize" in message


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


@pytest.mark.parametrize("form, suffix, change, refusal", [
    ("nvfp4", "weight_scale_2", lambda scale: None, "'{name}', are missing"),
    ("nvfp4", "weight_scale_2", lambda scale: -scale, "expected finite scales that are not negative, got -"),
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
     "or 'W8A8_SQ_PER_CHANNEL', got \"W4A16_AWQ\""),
    ("nvfp4 packed", lambda config: weights_of_group(type="int")(config),
     ".format: expected 'int-quantized', a code in a byte, got \"nvfp4-pack-quantized\""),
    ("nvfp4 packed", lambda config: weights_of_group(strategy="group")(config), ".group_size: expected 32, got 16"),
    ("nvfp4 packed", lambda config: weights_of_group(strategy="channel")(config),
     ".strategy: expected 'tensor_group' or 'group' of e2m1, got \"channel\"")])
def test_four_bits_of_another_form_are_refused_naming_the_field(form, change, refusal, made, load):
    folder = made(form)
    edit_config(folder, change)
    message = load(folder, 1, 0, "nvfp4")
    assert refusal in message and "layer model.layers." in message, message


@pytest.mark.parametrize("text", ["[]", "{}", "{"])
def test_modelopts_file_that_says_nothing_is_refused_by_its_name(text, made, load):
    folder = made("modelopt's file")
    (folder / "hf_quant_config.json").write_text(text)
    message = load(folder, 1, 0, "fp8_per_tensor")
    assert "hf_quant_config.json: expected a JSON object with the field 'quantization'" in message, message


def weights_of_group(**fields):
    """Changes how the one group's weights are quantized."""
    def change(config):
        config["quantization_config"]["config_groups"]["group_0"]["weights"].update(fields)

    return change


GROUP = "quantization_config.config_groups.group_0"


@pytest.mark.parametrize("change, refusal", [
    (weights_of_group(symmetric=False), "weight_zero_point', are missing"),
    (weights_of_group(strategy="tensor"),
     f"{GROUP}.weights.strategy: expected 'channel', or 'group' with a group_size, got \"tensor\""),
    (weights_of_group(type=None), f"{GROUP}.weights.type: expected 'float' or 'int', got null"),
    (lambda config: config["quantization_config"].update(format="pack-quantized"),
     "but config.json says that its codes are i32"),
    (lambda config: config["quantization_config"].update(format="marlin-24"),
     "quantization_config.format: expected 'int-quantized', a code in a byte, got \"marlin-24\""),
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
