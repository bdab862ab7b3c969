"""Checkpoints that are quantized already, and what an engine must serve of them: torch and safetensors alone.

make() writes an FP8, MXFP8, INT8 or NVFP4 checkpoint in one of the forms that are in use; served_tensors() is oracle.served_tensors() for
such a folder. Every linear layer is quantized, but for those that the form leaves out.
"""

import dataclasses
import json

import safetensors.torch
import torch

import disk_names
import oracle
import recipes
import shards

FP8 = torch.float8_e4m3fn
CODES = (FP8, torch.int8, torch.uint8)  # bytes: NVFP4
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
    input_scale: bool = False
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
                left_out=("layers.0.mlp.down_proj",), scalar_scale=True, input_scale=True),
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
    "compressed channels": Form("fp8_per_channel", "weight_scale",
                                _compressed("channel", ["lm_head", "re:.*layers\\.0\\.self_attn\\.[qkv]_proj"]),
                                left_out=("layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj",
                                          "layers.0.self_attn.v_proj")),
    "int8 channels": Form("int8_per_channel", "weight_scale",
                          _compressed("channel", ["lm_head", "model.layers.0.mlp.down_proj"], "int", symmetric=True),
                          left_out=("layers.0.mlp.down_proj",), scale_dtype=torch.bfloat16, input_scale=True),
    # Parts of a fused layer have a global scale each.
    "nvfp4": Form("nvfp4", "weight_scale",
                  {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16,
                   "exclude_modules": ["lm_head", "model.layers.0.mlp.down_proj"]},
                  left_out=("layers.0.mlp.down_proj",), input_scale=True),
    "nvfp4 packed": Form("nvfp4", "weight_scale",
                         _compressed("tensor_group", ["lm_head"], bits=4, group_size=16, symmetric=True), packed=True, input_scale=True),
}


def _quantized(form, weight, largest):
    """suffix -> tensor. `largest`: of all weights."""
    if form.recipe == "int8_per_channel":
        return _int8_of_compressed_tensors(weight)
    if form.packed:
        codes = recipes.quantize("nvfp4", weight, largest, None)
        g = recipes.FP8_MAX * 6.0 / largest.float()  # what compressed-tensors stores: the reciprocal of the scale
        return {"weight_packed": codes["weight"], "weight_scale": codes["weight_scale"], "weight_global_scale": g.reshape(1)}
    quantized = recipes.quantize(form.recipe, weight, weight.abs().amax(), weight.abs().amax(dim=1))
    if form.recipe == "nvfp4":
        quantized["weight"][::2] &= 0xDD  # blocks whose largest magnitude is 3, not 6, as others' may be
        return {**quantized, "weight_scale_2": quantized["weight_scale_2"].reshape(())}
    scale = next(value for key, value in quantized.items() if key != "weight").to(form.scale_dtype)
    if form.recipe == "mxfp8":
        scale[::2] += 1  # not the smallest power of two that would do, as others' need not be
    rows, *columns = scale.shape
    shape = () if form.scalar_scale else (-1,) if form.flat_scale else scale.shape
    shape = (rows, 1, *columns, 1) if form.spread_scale else shape
    return {"weight": quantized["weight"], form.scale: scale.reshape(shape)}


def _int8_of_compressed_tensors(weight):
    """Symmetric: half of 255 steps to either side, -128 among them, so these are not the recipe's own codes."""
    scale = (weight.float().abs().amax(dim=1, keepdim=True) / 127.5).to(torch.bfloat16)
    return {"weight": (weight.float() / scale.float()).clamp(-128, 127).round().to(torch.int8), "weight_scale": scale}


def _under_modelopts_names(tensors):
    """NVFP4 of compressed-tensors as ModelOpt would have it."""
    renamed = {}
    for name, tensor in tensors.items():
        for suffix, renamed_to in (("weight_global_scale", "weight_scale_2"), ("input_global_scale", "input_scale")):
            if name.endswith(f".{suffix}"):
                name, tensor = name.replace(suffix, renamed_to), 1.0 / tensor
        renamed[name.replace(".weight_packed", ".weight")] = tensor
    return renamed


def make(source, folder, form):
    """The checkpoint `source` in the form called `form`, in `folder`."""
    form = FORMS[form]
    folder.mkdir(parents=True)
    tensors, weights = {}, oracle.read_tensors(source)
    largest = torch.stack([w.abs().amax() for name, w in weights.items() if name.endswith(".weight")]).amax()
    for name, tensor in weights.items():
        module = name.removesuffix(".weight")
        if not module.endswith(LINEAR) or any(part in module for part in form.left_out) or name == module:
            tensors[name] = tensor
            continue
        tensors |= {f"{module}.{suffix}": value for suffix, value in _quantized(form, tensor, largest).items()}
        if form.input_scale:
            number = 0.01 * (len(tensors) % 29 + 1)  # parts of a layer differ
            name, value = ("input_global_scale", [1.0 / number]) if form.packed else ("input_scale", number)
            tensors[f"{module}.{name}"] = torch.tensor(value)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    config = oracle.read_config(source)
    if form.own_file:
        own = {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": form.config}
        (folder / "hf_quant_config.json").write_text(json.dumps(own))
    else:
        config = {**config, "quantization_config": form.config}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


class _Served(oracle._Served):
    """Where a layer cannot be served as it is, its weights are dequantized to the model's dtype."""

    form = None
    dtype = None

    def input_scale(self, module, parts):
        """The largest of a layer's parts."""
        if "input_scales" in self.holds:
            scales = [self.source[f"{part}.input_scale"].float().reshape(1) for part in parts]
            self.out[f"{module}.input_scale"] = torch.stack(scales).amax(dim=0)

    def experts(self, module):
        """Of activations all experts have one scale, their largest."""
        super().experts(module)
        for name in (f"{module}.w13_input_scale", f"{module}.w2_input_scale"):
            if name in self.out:
                self.out[name] = self.out[name].amax().reshape(1)

    def column(self, module, parts):
        dtype = self.source[f"{parts[0][0]}.weight"].dtype
        if dtype not in CODES:
            return self.in_full_precision(super().column, module, parts)
        self.input_scale(module, [part for part, _ in parts])
        if not self.as_it_is(self.rows_fit(parts)):
            for part, _ in parts:
                self.dequantize(part)
            return super().column(module, parts)
        if self.form.recipe == "nvfp4":
            return self.nvfp4_column(module, parts)
        codes = [shards.rows_of(self.source[f"{part}.weight"], rows) for part, rows in parts]
        scales = [self.scale(part) for part, _ in parts]
        if self.form.recipe == "fp8_per_tensor":
            largest = torch.stack([scale.reshape(1) for scale in scales]).amax(dim=0)
            codes = [self.at(code, scale, largest) for code, scale in zip(codes, scales)]
            self.out[f"{module}.weight_scale"] = largest
        elif self.form.recipe in ("fp8_per_channel", "int8_per_channel", "mxfp8"):
            kept = [shards.rows_of(scale, rows) for scale, (_, rows) in zip(scales, parts)]
            self.out[f"{module}.weight_scale"] = torch.cat(kept)
        else:
            kept = [scale[rows.start // 128 : -(-rows.stop // 128)] for scale, (_, rows) in zip(scales, parts)]
            self.out[f"{module}.weight_scale_inv"] = torch.cat(kept)
        self.out[f"{module}.weight"] = torch.cat([code.view(torch.uint8) for code in codes]).view(dtype)
        return None

    def nvfp4_column(self, module, parts):
        largest = max(self.source[f"{part}.weight_scale_2"].float().reshape(1) for part, _ in parts)
        at_largest = [(self.nvfp4_at(part, largest), rows) for part, rows in parts]
        self.out[f"{module}.weight"] = torch.cat([shards.rows_of(codes, rows) for (codes, _), rows in at_largest])
        kept = [shards.rows_of(scale.view(torch.uint8), rows) for (_, scale), rows in at_largest]
        self.out[f"{module}.weight_scale"] = torch.cat(kept).view(FP8)
        self.out[f"{module}.weight_scale_2"] = largest

    def nvfp4_at(self, part, largest):
        """Codes and scales of blocks, quantized anew where their global scale is another one."""
        served = {suffix: self.source[f"{part}.{suffix}"] for suffix in ("weight", "weight_scale", "weight_scale_2")}
        if served["weight_scale_2"].float() == largest:
            return served["weight"], served["weight_scale"]
        return recipes.nvfp4_blocks(recipes.dequantized(served, "weight"), 1.0 / largest)

    def row(self, module):
        codes = self.source[f"{module}.weight"]
        if codes.dtype not in CODES:
            return self.in_full_precision(super().row, module)
        self.input_scale(module, [module])
        if self.form.recipe == "nvfp4" and self.recipe == "nvfp4":
            blocks = shards.shard(codes.shape[1] // 8, self.t, self.r)
            self.out[f"{module}.weight"] = codes[:, blocks.start * 8 : blocks.stop * 8]
            self.out[f"{module}.weight_scale"] = self.source[f"{module}.weight_scale"][:, blocks.start : blocks.stop]
            self.out[f"{module}.weight_scale_2"] = self.source[f"{module}.weight_scale_2"].reshape(1)
            return None
        columns = shards.shard(codes.shape[1], self.t, self.r)
        if self.form.recipe == "mxfp8" and self.recipe == "mxfp8":
            self.out[f"{module}.weight"] = codes[:, columns.start : columns.stop]
            blocks = slice(columns.start // 32, columns.stop // 32)
            self.out[f"{module}.weight_scale"] = self.scale(module)[:, blocks]
            return None
        ends = columns.stop % 128 == 0 or columns.stop == codes.shape[1]
        if not self.as_it_is(columns.start % 128 == 0 and ends):
            self.dequantize(module)
            return super().row(module)
        scale = self.scale(module)
        if self.form.recipe == "fp8_per_block":
            self.out[f"{module}.weight_scale_inv"] = scale[:, columns.start // 128 : -(-columns.stop // 128)]
        else:
            self.out[f"{module}.weight_scale"] = scale.reshape(1) if scale.numel() == 1 else scale
        self.out[f"{module}.weight"] = codes[:, columns.start : columns.stop]
        return None

    def in_full_precision(self, take, *arguments):
        recipe, self.recipe = self.recipe, "none"
        take(*arguments)
        self.recipe = recipe

    def as_it_is(self, blocks_fit):
        return self.recipe == self.form.recipe and (self.recipe != "fp8_per_block" or blocks_fit)

    def rows_fit(self, parts):
        """Whole blocks, but for the last one of a weight that is not cut."""
        *_, (last, kept) = parts
        is_cut = len(kept) != self.source[f"{last}.weight"].shape[0]
        edges = [edge for _, rows in parts for edge in (rows.start, rows.stop)]
        return all(edge % 128 == 0 for edge in (edges if is_cut else edges[:-1]))

    def scale(self, module):
        scale = self.source[f"{module}.{self.form.scale}"]
        if self.form.spread_scale:
            scale = scale[:, 0, :, 0]
        if self.form.recipe == "mxfp8":  # exponents
            return scale
        return scale.float().reshape(-1, 1) if self.form.flat_scale else scale.float()

    def dequantize(self, module):
        name = {"fp8_per_block": "weight_scale_inv"}.get(self.form.recipe, "weight_scale")
        served = {"weight": self.source[f"{module}.weight"], name: self.scale(module)}
        if self.form.recipe == "nvfp4":
            served["weight_scale_2"] = self.source[f"{module}.weight_scale_2"]
        self.source[f"{module}.weight"] = recipes.dequantized(served, "weight").to(self.dtype)

    @staticmethod
    def at(codes, scale, largest):
        if scale == largest:
            return codes
        return (codes.float() * scale * (1.0 / largest)).clamp(-448.0, 448.0).to(FP8)


def _rank(tensors, config, form, tp_size, rank, recipe):
    served = _Served(_under_modelopts_names(tensors), config, tp_size, rank, recipe, False)
    served.form = FORMS[form]
    served.dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
    return served


def served_tensors(folder, form, tp_size, rank, recipe, holds=()):
    config = oracle.read_config(folder)
    served = _rank(disk_names.cache_scale_names(oracle.read_tensors(folder)), config, form, tp_size, rank, recipe)
    served.holds = holds
    return served.model()


def with_whole_experts(folder, form, ranks, rank, recipe, holds=()):
    """Of engines whose ranks hold whole experts each: the first ones have one more where ranks do not divide them."""
    served = served_tensors(folder, form, ranks, rank, recipe, holds)
    for name, stack in served_tensors(folder, form, 1, 0, recipe, holds).items():
        if ".experts." in name and not name.endswith("input_scale"):
            served[name] = stack.tensor_split(ranks)[rank]
    return served


def served_draft(folder, form, tp_size, rank, recipe):
    """Of the draft layers of the checkpoint."""
    config = oracle.read_config(folder)
    tensors = disk_names.draft_names(config, oracle.read_tensors(folder))
    return _rank(tensors, config, form, tp_size, rank, recipe).draft()


MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                             "model.embed_tokens", "lm_head"]}


def make_mxfp4(source, folder):
    """A GPT-OSS checkpoint with experts of random MXFP4 blocks, as they are published: its folder, and that of a second
    one which holds what transformers makes of them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    config = oracle.read_config(source)
    dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
    packed, plain = {}, {}
    generator = torch.Generator().manual_seed(11)
    for name, tensor in oracle.read_tensors(source).items():
        if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            packed[name] = plain[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        scales = torch.randint(116, 125, (experts, rows, columns // 32), generator=generator).to(torch.uint8)
        blocks = torch.randint(0, 256, (*scales.shape, 16), generator=generator).to(torch.uint8)
        packed[f"{name}_blocks"], packed[f"{name}_scales"] = blocks, scales
        plain[name] = convert_moe_packed_tensors(blocks, scales, dtype=dtype)
    for path, tensors, extra in ((folder / "packed", packed, {"quantization_config": MXFP4}), (folder / "plain", plain, {})):
        path.mkdir(parents=True)
        safetensors.torch.save_file(tensors, path / "model.safetensors")
        (path / "config.json").write_text(json.dumps({**config, **extra}))
    return folder / "packed", folder / "plain"


def with_experts_alone_quantized(folder, tp_size, rank, recipe):
    """What oracle.served_tensors says, but for layers that MXFP4 checkpoints leave out."""
    served = oracle.served_tensors(folder, tp_size, rank, recipe)
    plain = oracle.served_tensors(folder, tp_size, rank, "none")
    return ({name: tensor for name, tensor in served.items() if ".experts." in name}
            | {name: tensor for name, tensor in plain.items() if ".experts." not in name})


def with_experts_in_blocks(packed, plain, tp_size, rank):
    """Blocks and exponents as the checkpoint has them: rows of gate, then of up, which alternate there."""
    served = {name: tensor for name, tensor in oracle.served_tensors(plain, tp_size, rank, "none").items()
              if not name.endswith((".w13_weight", ".w2_weight"))}
    for name, tensor in oracle.read_tensors(packed).items():
        module, _, kind = name.rpartition(".")
        if not kind.endswith(("_blocks", "_scales")):
            continue
        if kind.startswith("gate_up"):
            own, half = "w13_weight", shards.shard(tensor.shape[1] // 2, tp_size, rank)
            rows = [shards.rows_of(part.transpose(0, 1), half).transpose(0, 1) for part in (tensor[:, 0::2], tensor[:, 1::2])]
            tensor = torch.cat(rows, dim=1)
        else:
            own, blocks = "w2_weight", shards.shard(tensor.shape[2], tp_size, rank)
            tensor = tensor[:, :, blocks.start : blocks.stop]
        if kind.endswith("_blocks"):
            served[f"{module}.{own}"] = tensor.flatten(2).contiguous()
        else:
            served[f"{module}.{own}_scale"] = tensor.contiguous()
    return served
