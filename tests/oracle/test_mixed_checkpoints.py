"""Checkpoints whose layers have several forms, against the oracle byte for byte: each layer served in its own, whatever came before it,
or all of them under one recipe."""

import pytest

import mixed_checkpoints
import oracle
import quantized_forms
from quantized_forms import FORMS, LINEAR, edit_config

FP8_CHANNELS = {"num_bits": 8, "type": "float", "strategy": "channel"}
INT8_CHANNELS = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


def groups(ignore, *targets_and_weights):
    """As compressed-tensors says it."""
    return {"quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head", *ignore],
            "config_groups": {f"group_{i}": {"targets": targets, "weights": weights, "format": stored}
                              for i, (targets, weights, stored) in enumerate(targets_and_weights)}}


def modelopt(forms, modules):
    """As ModelOpt says it, module by module."""
    layers = {}
    for module in modules:
        form = next((FORMS[form] for part, form in forms.items() if part in module), None)
        if form is not None:
            layers[module] = {key: form.config[key] for key in ("quant_algo", "group_size") if key in form.config}
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "exclude_modules": ["lm_head"]}


# What a layer's name contains -> its form, and what config.json says of that.
MIXES = {
    "attention and the rest": (
        {"self_attn": "compressed channels", "": "nvfp4 packed"},
        lambda forms, modules: groups([], (["re:.*self_attn.*"], FP8_CHANNELS, "float-quantized"),
                                      (["Linear"], NVFP4, "nvfp4-pack-quantized"))),
    "by the name of each": (
        {"layers.0.self_attn": "int8 channels", "o_proj": "compressed channels"},
        lambda forms, modules: groups(
            [], ([module for module in modules if "layers.0.self_attn" in module], INT8_CHANNELS, "int-quantized"),
            (["re:.*o_proj$"], FP8_CHANNELS, "float-quantized"))),
    "modelopt": ({"self_attn": "modelopt", "mlp": "nvfp4"}, modelopt),
    "modelopt, some": ({"layers.1.self_attn": "modelopt mxfp8", "layers.1.mlp": "nvfp4"}, modelopt),
}


@pytest.fixture
def made(checkpoint, tmp_path):
    """The quantized checkpoint, and one in full precision of another version that says the same of itself."""

    def make(mix, spec):
        forms, config = MIXES[mix]
        modules = [name.removesuffix(".weight") for name in oracle.read_tensors(checkpoint(spec, "a"))]
        config = config(forms, [module for module in modules if module.endswith(LINEAR)])
        folder = mixed_checkpoints.make(checkpoint(spec, "a"), tmp_path / "mixed", forms, config)
        plain = mixed_checkpoints.make(checkpoint(spec, "b"), tmp_path / "plain", {}, config)
        return folder, plain, forms

    return make


def assert_same(got, expected):
    assert not isinstance(got, str), got
    assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("spec", ["qwen3_wide", "deepseek_v3_wide"])
@pytest.mark.parametrize("mix", MIXES)
def test_each_layer_is_served_in_its_form(mix, spec, made, load):
    """Cold, live after weights in full precision, and those after the quantized ones: they get each layer's own recipe."""
    folder, plain, forms = made(mix, spec)
    for tp, rank in ((1, 0), (2, 0), (2, 1)):
        expected = mixed_checkpoints.served_tensors(folder, forms, tp, rank, "checkpoint")
        assert len({tensor.dtype for name, tensor in expected.items() if name.endswith("proj.weight")}) > 1
        assert_same(load(folder, tp, rank, "checkpoint"), expected)
        assert_same(load(folder, tp, rank, "checkpoint", "direct", f"before={plain}"), expected)
        trained = mixed_checkpoints.served_tensors(plain, forms, tp, rank, "checkpoint")
        assert_same(load(plain, tp, rank, "checkpoint", "direct", f"before={folder}"), trained)
        assert_same(load(plain, tp, rank, "checkpoint", way="iterator"), trained)


@pytest.mark.parametrize("mix, recipe", [("attention and the rest", "none"), ("attention and the rest", "nvfp4"),
                                         ("by the name of each", "fp8_per_channel"), ("modelopt", "fp8_per_block"),
                                         ("modelopt, some", "mxfp8")])
def test_under_one_recipe_the_layers_of_another_form_are_quantized_anew_if_asked_for(mix, recipe, made, load):
    folder, _, forms = made(mix, "qwen3_wide")
    for tp in (1, 2):
        expected = mixed_checkpoints.served_tensors(folder, forms, tp, tp - 1, recipe)
        assert_same(load(folder, tp, tp - 1, recipe, "requantize"), expected)
    message = load(folder, 1, 0, recipe)
    assert "these layers are quantized already and cannot be served as they are" in message, message
    assert f"expected weights for {recipe}, got codes of " in message


def test_a_checkpoint_of_one_form_is_served_in_it(checkpoint, tmp_path, load):
    for form in ("compressed channels", "nvfp4"):
        folder = quantized_forms.make(checkpoint("qwen3_wide", "a"), tmp_path / form, form)
        assert_same(load(folder, 2, 1, "checkpoint"), load(folder, 2, 1, FORMS[form].recipe))
    assert_same(load(checkpoint("qwen3_wide", "a"), 2, 1, "checkpoint"), load(checkpoint("qwen3_wide", "a"), 2, 1, "none"))


@pytest.mark.parametrize("edit, refusal", [
    (lambda config: config["config_groups"]["group_0"].update(targets=["re:.*self_attn\\.[qko]_proj$"]),
     "parts of model.layers.0.self_attn.qkv_proj have several forms: model.layers.0.self_attn.q_proj is in "
     "quantization_config.config_groups.group_0 (fp8_per_channel), model.layers.0.self_attn.v_proj is in "
     "quantization_config.config_groups.group_1 (nvfp4); a fused layer has one precision"),
    (lambda config: config["config_groups"]["group_1"].update(targets=["re:.*down_proj"]),
     "quantization_config has no group of it"),
    (lambda config: config["config_groups"]["group_1"]["weights"].update(num_bits=5),
     "quantization_config.config_groups.group_1.weights.num_bits: expected 8 or 4, got 5")])
def test_what_the_groups_say_is_held_against_the_codes(edit, refusal, made, load):
    folder, _, _ = made("attention and the rest", "qwen3_wide")
    edit_config(folder, lambda config: edit(config["quantization_config"]))
    assert refusal in load(folder, 1, 0, "checkpoint")
