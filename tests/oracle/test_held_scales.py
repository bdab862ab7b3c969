"""Scales of activations and of key/value caches, for engines that have them: under every name that checkpoints use, one for a
fused layer, 1 where a version has none; refused where they cannot be."""


import pytest
import safetensors.torch
import torch

import oracle
import quantized_checkpoints
import quantized_forms

ATTENTION = "model.layers.{}.self_attn"
CACHE, INPUTS = "kv_cache_scales", "input_scales"
# Names for the two layers of a model, each with its shape and its dtype.
CACHE_NAMES = {
    "of projections": ("k_proj.k_scale", "v_proj.v_scale"),
    "of the fused projection": ("qkv_proj.k_scale", "qkv_proj.v_scale"),
    "of the fused projection, as it once came out": ("qkqkv_proj.k_scale", "qkqkv_proj.v_scale"),
    "of attention": ("k_scale", "v_scale"),
    "of its attn": ("attn.k_scale", "attn.v_scale"),
    "of caches": ("k_cache.scale", "v_cache.scale"),
    "compressed-tensors": ("k_proj.output_scale", "v_proj.output_scale"),
    "one for both": ("kv_scale",),
}


@pytest.fixture
def copied(checkpoint, tmp_path):
    """A checkpoint with more tensors."""

    def copy(spec, more):
        source, folder = checkpoint(spec, "a"), tmp_path / "copied"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_bytes((source / "config.json").read_bytes())
        safetensors.torch.save_file(oracle.read_tensors(source) | more, folder / "model.safetensors")
        return folder

    return copy


def cache_scales(names, layers=(0, 1)):
    return {f"{ATTENTION.format(layer)}.{name}": torch.tensor(0.5 + layer + 0.25 * place)
            for layer in layers for place, name in enumerate(names)}


def assert_served(load, folder, tp, recipe, *words, way="path"):
    for rank in range(tp):
        got = load(folder, tp, rank, recipe, CACHE, *words, way=way)
        assert not isinstance(got, str), got
        assert oracle.differences(got, oracle.served_tensors(folder, tp, rank, recipe, holds=(CACHE,))) == []


@pytest.mark.parametrize("form", CACHE_NAMES)
def test_scales_of_caches_under_every_name(form, copied, load):
    folder = copied("qwen3", cache_scales(CACHE_NAMES[form]))
    assert_served(load, folder, 1, "none")
    assert_served(load, folder, 2, "fp8_per_channel", "direct")
    served = load(folder, 2, 1, "none", CACHE)
    assert served["model.layers.1.self_attn.attn.k_scale"].item() == 1.5
    assert served["model.layers.1.self_attn.attn.v_scale"].item() == (1.5 if form == "one for both" else 1.75)


def test_scales_of_the_caches_of_latent_attention(copied, load):
    folder = copied("deepseek_v3", cache_scales(CACHE_NAMES["of attention"]))
    assert_served(load, folder, 2, "none", "direct")


def test_a_layer_of_whose_cache_a_version_has_no_scales_has_ones(checkpoint, copied, load):
    for words in ((), ("direct",)):
        assert_served(load, checkpoint("qwen3", "a"), 2, "fp8_per_block", *words)
        assert_served(load, checkpoint("qwen3", "a"), 2, "none", "shuffled=3", *words, way="iterator")
        folder = copied("qwen3", cache_scales(CACHE_NAMES["of projections"], layers=(1,)))
        assert_served(load, folder, 2, "none", *words)
        served = load(folder, 1, 0, "none", CACHE, *words)
        assert served["model.layers.0.self_attn.attn.k_scale"].item() == 1
        assert served["model.layers.1.self_attn.attn.k_scale"].item() == 1.5


def test_what_is_said_of_queries_and_of_zero_points_is_skipped(checkpoint, copied, load):
    more = cache_scales(("q_scale", "q_zero_point", "k_zero_point", "v_zero_point"))
    served = load(copied("qwen3", more), 2, 1, "none")
    assert not isinstance(served, str), served
    assert oracle.differences(served, oracle.served_tensors(checkpoint("qwen3", "a"), 2, 1, "none")) == []
    held = load(copied("qwen3", more | cache_scales(("k_scale", "v_scale"))), 2, 1, "none", CACHE)
    assert not isinstance(held, str), held
    assert oracle.differences(held, oracle.served_tensors(copied("qwen3", cache_scales(("k_scale", "v_scale"))), 2, 1, "none",
                                                          holds=(CACHE,))) == []


def test_an_engine_that_has_no_such_scales_serves_the_same_without_them(checkpoint, copied, load):
    plain = checkpoint("qwen3", "a")
    for form in CACHE_NAMES.values():
        folder = copied("qwen3", cache_scales(form))
        assert oracle.differences(load(folder, 2, 1, "none"), oracle.served_tensors(plain, 2, 1, "none")) == []


def test_scales_in_another_dtype_and_shape(copied, load):
    scales = {name: scale.reshape(1).to(torch.bfloat16)
              for name, scale in cache_scales(CACHE_NAMES["of attention"]).items()}
    assert_served(load, copied("qwen3", scales), 2, "none", "direct")
    name, scale = next(iter(scales.items()))
    message = load(copied("qwen3", scales | {name: scale.expand(4).clone()}), 2, 0, "none", CACHE)
    assert name in message and "[1] f32" in message and "[4] bf16" in message


@pytest.mark.parametrize("words", [(), ("direct",)])
def test_a_scale_for_keys_alone_is_that_of_values_too(words, copied, load):
    folder = copied("qwen3", cache_scales(("k_scale",), layers=(0,)))
    assert_served(load, folder, 2, "none", *words)
    assert_served(load, folder, 2, "none", *words, way="iterator")
    served = load(folder, 1, 0, "none", CACHE, *words)
    own = oracle.read_tensors(folder)["model.layers.0.self_attn.k_scale"].item()
    assert own != 1 and [served[f"model.layers.{i}.self_attn.attn.v_scale"].item() for i in (0, 1)] == [own, 1]


def test_a_scale_for_values_alone_is_refused(copied, load):
    message = load(copied("qwen3", cache_scales(("v_scale",), layers=(0,))), 1, 0, "none", CACHE)
    assert "model.layers.0.self_attn.attn.k_scale" in message and "model.layers.1" not in message


@pytest.mark.parametrize("words", [(), ("direct",)])
@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf")])
def test_scales_that_cannot_be_are_named(value, words, copied, load):
    scales = cache_scales(CACHE_NAMES["of projections"])
    name = "model.layers.1.self_attn.v_proj.v_scale"
    message = load(copied("qwen3", scales | {name: torch.tensor(value)}), 2, 1, "none", CACHE, *words)
    assert f"'{name}'" in message and "expected finite" in message
    if value <= 0:
        assert f"layer model.layers.1.self_attn.attn: '{name}': expected finite scales above zero, got" in message


@pytest.fixture
def made(checkpoint, tmp_path):
    return lambda form, spec="qwen3_wide": quantized_forms.make(checkpoint(spec, "a"), tmp_path / "made", form)


def assert_quantized(load, folder, form, tp, recipe, *words):
    for rank in range(tp):
        expected = quantized_checkpoints.served_tensors(folder, form, tp, rank, recipe, holds=(INPUTS, CACHE))
        got = load(folder, tp, rank, recipe, INPUTS, CACHE, *words)
        assert not isinstance(got, str), got
        assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("words", [(), ("direct",)])
@pytest.mark.parametrize("form", ["fp8", "transformers"])
def test_a_fused_layer_has_the_largest_scale_of_its_parts(form, words, made, load):
    folder, name = made(form), quantized_forms.FORMS[form].input_scale
    assert_quantized(load, folder, form, 1, "fp8_per_tensor", *words)
    assert_quantized(load, folder, form, 2, "fp8_per_tensor", *words)
    served, own = load(folder, 2, 1, "fp8_per_tensor", INPUTS), oracle.read_tensors(folder)
    parts = {own[f"model.layers.0.self_attn.{part}_proj.{name}"].item() for part in "qkv"}
    assert len(parts) == 3 and served["model.layers.0.self_attn.qkv_proj.input_scale"].item() == max(parts)
    assert "model.layers.0.mlp.down_proj.input_scale" not in served  # which config.json leaves out


@pytest.mark.parametrize("form", ["nvfp4", "nvfp4 packed"])
def test_scales_of_activations_of_nvfp4_are_held_by_either_name(form, made, load):
    folder = made(form)
    assert_quantized(load, folder, form, 1, "nvfp4")
    assert_quantized(load, folder, form, 2, "nvfp4", "direct")


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf"), 1e-45])
def test_reciprocals_of_scales_that_cannot_be_are_named(value, made, load):
    folder = made("nvfp4 packed")
    name = "model.layers.1.mlp.down_proj.input_global_scale"
    tensors = oracle.read_tensors(folder) | {name: torch.tensor([value])}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    message = load(folder, 2, 0, "nvfp4", INPUTS)
    assert f"{name}'" in message and "expected finite" in message


def test_experts_have_one_scale_of_activations_for_each_of_their_weights(made, load):
    folder = made("fp8", "deepseek_v3_wide")
    own = {name: scale.item() for name, scale in oracle.read_tensors(folder).items()
           if ".experts." in name and name.endswith(".input_scale")}
    largest = {"w13": max(own[name] for name in own if ".down_proj." not in name),
               "w2": max(own[name] for name in own if ".down_proj." in name)}
    for words in (("requantize",), ("requantize", "direct")):
        served = load(folder, 2, 1, "fp8_per_channel", INPUTS, *words)
        assert not isinstance(served, str), served
        for name, scale in largest.items():
            assert served[f"model.layers.1.mlp.experts.{name}_input_scale"].tolist() == [torch.tensor(scale).item()]


def test_scales_of_activations_stay_where_weights_are_quantized_anew(made, load):
    assert_quantized(load, made("fp8"), "fp8", 2, "none", "requantize")


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf")])
def test_scales_of_activations_that_cannot_be_are_named(value, made, load):
    folder = made("fp8")
    tensors = oracle.read_tensors(folder)
    name = "model.layers.1.self_attn.k_proj.input_scale"
    safetensors.torch.save_file(tensors | {name: torch.tensor(value)}, folder / "model.safetensors")
    message = load(folder, 2, 0, "fp8_per_tensor", INPUTS)
    assert f"'{name}'" in message and "expected finite" in message
    if value <= 0:
        assert f"layer model.layers.1.self_attn.qkv_proj: '{name}': expected finite scales above zero, got" in message


def test_scales_of_activations_that_are_missing_are_named(made, load):
    folder = made("fp8")
    tensors = oracle.read_tensors(folder)
    name = "model.layers.1.self_attn.k_proj.input_scale"
    del tensors[name]
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    message = load(folder, 1, 0, "fp8_per_tensor", INPUTS)
    assert "layer model.layers.1.self_attn.qkv_proj" in message and f"'{name}' is missing" in message
    for part in "qv":
        del tensors[name.replace("k_proj", f"{part}_proj")]
    del tensors["model.layers.1.mlp.down_proj.input_scale"]
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    message = load(folder, 1, 0, "fp8_per_tensor", INPUTS)
    for missing in ("self_attn.qkv_proj", "mlp.down_proj"):
        assert f"model.layers.1.{missing}.input_scale" in message
