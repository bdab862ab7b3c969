"""Checkpoints that are quantized already, in the forms that are in use: torch and safetensors alone.

make() writes an FP8, MXFP8, MXFP4, INT8 or NVFP4 checkpoint. Every linear layer is quantized, but for those that the form leaves out.
"""

import dataclasses
import functools
import json

import safetensors.torch
import torch

import oracle
import recipes

FP8 = torch.float8_e4m3fn
CODES = (FP8, torch.int8, torch.uint8)  # bytes: NVFP4, MXFP4
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "q_a_proj", "kv_a_proj_with_mqa",
          "q_b_proj", "kv_b_proj")


@dataclasses.dataclass(frozen=True)
class Form:
    recipe: str  # whose codes and scales they are
    scale: str  # the name of the scales
    config: dict
    left_out: tuple = ()  # modules, by what their names contain
    scale_dtype: torch.dtype = torch.float32
    scalar_scale: bool = False  # of no dimension
    input_scale: str = ""  # what that of activations is called, where there is one
    flat_scale: bool = False  # [rows]
    spread_scale: bool = False  # [rows / 128, 1, columns / 128, 1]
    own_file: bool = False  # `config` in hf_quant_config.json
    packed: bool = False  # NVFP4 under compressed-tensors' names, with one global scale for all weights


def _compressed(strategy, ignore, type="float", bits=8, **fields):
    group = {"targets": ["Linear"], "weights": {"num_bits": bits, "type": type, "strategy": strategy, **fields}}
    stored = "nvfp4-pack-quantized" if bits == 4 else f"{type}-quantized"
    return {"quant_method": "compressed-tensors", "format": stored, "config_groups": {"group_0": group}, "ignore": ignore}


FORMS = {
    "deepseek": Form("fp8_per_block", "weight_scale_inv",
                     {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                      "weight_block_size": [128, 128],
                      "modules_to_not_convert": ["lm_head", "model.layers.1.self_attn.o_proj"]},
                     left_out=("layers.1.self_attn.o_proj",)),
    "compressed blocks": Form("fp8_per_block", "weight_scale",
                              _compressed("block", ["lm_head"], block_structure=[128, 128]),
                              scale_dtype=torch.bfloat16),
    "fp8": Form("fp8_per_tensor", "weight_scale", {"quant_method": "fp8", "activation_scheme": "static",
                                                   "ignored_layers": ["model.layers.0.mlp.down_proj"]},
                left_out=("layers.0.mlp.down_proj",), scalar_scale=True, input_scale="input_scale"),
    # As it calls what it quantizes, whatever the scales are of (tests/oracle/test_transformers_fp8.py).
    "transformers": Form("fp8_per_tensor", "weight_scale_inv",
                         {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None, "scale_fmt": "float",
                          "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.down_proj"]},
                         left_out=("layers.0.mlp.down_proj",), scalar_scale=True, input_scale="activation_scale"),
    "transformers exponents": Form("fp8_per_block", "weight_scale_inv",
                                   {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                                    "scale_fmt": "ue8m0", "modules_to_not_convert": ["lm_head"]},
                                   scale_dtype=torch.float8_e8m0fnu),
    # Experts in full precision, each named by itself.
    "deepseek without experts": Form("fp8_per_block", "weight_scale_inv",
                                     {"quant_method": "fp8", "weight_block_size": [128, 128],
                                      "modules_to_not_convert": ["lm_head"] + [
                                          f"model.layers.1.mlp.experts.{expert}.{projection}" for expert in range(6)
                                          for projection in ("gate_proj", "up_proj", "down_proj")]},
                                     left_out=(".mlp.experts.",)),
    "compressed tensors": Form("fp8_per_tensor", "weight_scale", _compressed("tensor", ["lm_head"])),
    "modelopt": Form("fp8_per_tensor", "weight_scale",
                     {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head", "*1.mlp*"]},
                     left_out=("layers.1.mlp.",)),
    "modelopt's file": Form("fp8_per_tensor", "weight_scale",
                            {"quant_algo": "FP8", "kv_cache_quant_algo": None,
                             "exclude_modules": ["lm_head*", "model.layers.1.self_attn.o_proj"]},
                            left_out=("layers.1.self_attn.o_proj",), scalar_scale=True, own_file=True),
    "modelopt channels": Form("fp8_per_channel", "weight_scale",
                              {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "kv_cache_quant_algo": None,
                               "exclude_modules": ["lm_head", "model.layers.1.self_attn.o_proj"]},
                              left_out=("layers.1.self_attn.o_proj",), flat_scale=True, own_file=True),
    "modelopt blocks": Form("fp8_per_block", "weight_scale",
                            {"quant_algo": "fp8_pb_wo", "kv_cache_quant_algo": None,
                             "exclude_modules": ["lm_head", "model.layers.1.self_attn.o_proj"]},
                            left_out=("layers.1.self_attn.o_proj",), spread_scale=True, own_file=True),
    "modelopt mxfp8": Form("mxfp8", "weight_scale",
                           {"quant_method": "modelopt", "quant_algo": "MXFP8", "group_size": 32,
                            "ignore": ["lm_head", "model.layers.0.mlp.down_proj"]},
                           left_out=("layers.0.mlp.down_proj",), scale_dtype=torch.uint8),
    # As its release 0.47 writes them, in capitals or not.
    "modelopt mxfp4": Form("mxfp4", "weight_scale",
                           {"quant_algo": "mxfp4", "kv_cache_quant_algo": None,
                            "exclude_modules": ["lm_head", "model.embed_tokens", "model.layers.1.self_attn*"]},
                           left_out=("layers.1.self_attn.",), scale_dtype=torch.uint8, own_file=True),
    "modelopt int8": Form("int8_per_channel", "weight_scale",
                          {"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL",
                           "ignore": ["lm_head", "model.embed_tokens", "model.layers.0.mlp.down_proj"]},
                          left_out=("layers.0.mlp.down_proj",), flat_scale=True, input_scale="input_scale"),
    # As SGLang's converters write it.
    "mxfp8": Form("mxfp8", "weight_scale_inv",
                  {"quant_method": "mxfp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [1, 32],
                   "scale_fmt": "ue8m0", "modules_to_not_convert": ["lm_head", "model.layers.1.self_attn.o_proj"]},
                  left_out=("layers.1.self_attn.o_proj",), scale_dtype=torch.uint8),
    "compressed mxfp8": Form("mxfp8", "weight_scale", _compressed("group", ["lm_head"], group_size=32, scale_dtype="torch.uint8"),
                             scale_dtype=torch.uint8),
    "compressed channels": Form("fp8_per_channel", "weight_scale",
                                _compressed("channel", ["lm_head", "re:.*layers\\.0\\.self_attn\\.[qkv]_proj"]),
                                left_out=("layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj",
                                          "layers.0.self_attn.v_proj")),
    "int8 channels": Form("int8_per_channel", "weight_scale",
                          _compressed("channel", ["lm_head", "model.layers.0.mlp.down_proj"], "int", symmetric=True),
                          left_out=("layers.0.mlp.down_proj",), scale_dtype=torch.bfloat16, input_scale="input_scale"),
    # Parts of a fused layer have a global scale each.
    "nvfp4": Form("nvfp4", "weight_scale",
                  {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16,
                   "exclude_modules": ["lm_head", "model.layers.0.mlp.down_proj"]},
                  left_out=("layers.0.mlp.down_proj",), input_scale="input_scale"),
    "nvfp4 packed": Form("nvfp4", "weight_scale",
                         _compressed("tensor_group", ["lm_head"], bits=4, group_size=16, symmetric=True), packed=True,
                         input_scale="input_global_scale"),
}


def quantized(form, weight, largest):
    """suffix -> tensor. `largest`: of all weights."""
    if form.packed:
        codes = recipes.quantize("nvfp4", weight, largest, None)
        g = recipes.FP8_MAX * 6.0 / largest.float()  # what compressed-tensors stores: the reciprocal of the scale
        return {"weight_packed": codes["weight"], "weight_scale": codes["weight_scale"], "weight_global_scale": g.reshape(1)}
    if form.recipe == "int8_per_channel":
        quantized = _int8_of_compressed_tensors(weight)
    else:
        quantized = recipes.quantize(form.recipe, weight, weight.abs().amax(), weight.abs().amax(dim=1))
    if form.recipe == "nvfp4":
        quantized["weight"][::2] &= 0xDD  # blocks whose largest magnitude is 3, not 6, as others' may be
        return {**quantized, "weight_scale_2": quantized["weight_scale_2"].reshape(())}
    scale = next(value for key, value in quantized.items() if key != "weight").to(form.scale_dtype)
    if form.recipe in ("mxfp4", "mxfp8"):
        scale[::2] += 1  # not the smallest power of two that would do, as others' need not be
    rows, *columns = scale.shape
    shape = () if form.scalar_scale else (-1,) if form.flat_scale else scale.shape
    shape = (rows, 1, *columns, 1) if form.spread_scale else shape
    return {"weight": quantized["weight"], form.scale: scale.reshape(shape)}


def _int8_of_compressed_tensors(weight):
    """Symmetric: half of 255 steps to either side, -128 among them, so these are not the recipe's own codes."""
    scale = (weight.float().abs().amax(dim=1, keepdim=True) / 127.5).to(torch.bfloat16)
    return {"weight": (weight.float() / scale.float()).clamp(-128, 127).round().to(torch.int8), "weight_scale": scale}


def largest_of(weights):
    return torch.stack([w.abs().amax() for name, w in weights.items() if name.endswith(".weight")]).amax()


@functools.lru_cache(maxsize=64)
def _content(source, form):
    """The bytes of the one file. Most checkpoints are made again for many tests."""
    form, tensors, weights = FORMS[form], {}, oracle.read_tensors(source)
    largest = largest_of(weights)
    for name, tensor in weights.items():
        module = name.removesuffix(".weight")
        if not module.endswith(LINEAR) or any(part in module for part in form.left_out) or name == module:
            tensors[name] = tensor
            continue
        tensors |= {f"{module}.{suffix}": value for suffix, value in quantized(form, tensor, largest).items()}
        if form.input_scale:
            number = 0.01 * (len(tensors) % 29 + 1)  # parts of a layer differ
            tensors[f"{module}.{form.input_scale}"] = torch.tensor([1.0 / number] if form.packed else number)
    return safetensors.torch.save(tensors)


def make(source, folder, form):
    """The checkpoint `source`, which stays as it is, in the form called `form`, in `folder`."""
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(_content(source, form))
    form, config = FORMS[form], oracle.read_config(source)
    if form.own_file:
        own = {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": form.config}
        (folder / "hf_quant_config.json").write_text(json.dumps(own))
    else:
        config = {**config, "quantization_config": form.config}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def edit_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
