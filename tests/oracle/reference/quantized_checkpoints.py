"""What an engine must serve of a checkpoint that is quantized already: torch and safetensors alone. served_tensors() is
oracle.served_tensors() for a folder that quantized_forms.make() has written."""

import torch

import disk_names
import oracle
import recipes
import served_model
import shards
from quantized_forms import CODES, FORMS, FP8, Form

BLOCK_BYTES = {"nvfp4": 8, "mxfp4": 16, "mxfp8": 32}  # of codes that have one scale
EXPONENTS = ("mxfp4", "mxfp8")

def _under_modelopts_names(tensors):
    """NVFP4 of compressed-tensors, and transformers' scales of activations, as ModelOpt would have them."""
    renamed = {}
    for name, tensor in tensors.items():
        for suffix, renamed_to in (("weight_global_scale", "weight_scale_2"), ("input_global_scale", "input_scale")):
            if name.endswith(f".{suffix}"):
                name, tensor = name.replace(suffix, renamed_to), 1.0 / tensor
        renamed[name.replace(".weight_packed", ".weight").replace(".activation_scale", ".input_scale")] = tensor
    return renamed


class Served(served_model.ServedModel):
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
        elif self.form.recipe in ("fp8_per_channel", "int8_per_channel", *EXPONENTS):
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
        size = BLOCK_BYTES.get(self.form.recipe)
        if size and self.recipe == self.form.recipe:
            blocks = shards.shard(codes.shape[1] // size, self.t, self.r)
            self.out[f"{module}.weight"] = codes[:, blocks.start * size : blocks.stop * size]
            self.out[f"{module}.weight_scale"] = self.source[f"{module}.{self.form.scale}"][:, blocks.start : blocks.stop]
            if self.recipe == "nvfp4":
                self.out[f"{module}.weight_scale_2"] = self.source[f"{module}.weight_scale_2"].reshape(1)
            return None
        columns = shards.shard(codes.shape[1], self.t, self.r)
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
        if self.form.recipe in EXPONENTS:
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


def of_rank(tensors, config, tp_size, rank, recipe, kind=Served):
    served = kind(_under_modelopts_names(tensors), config, tp_size, rank, recipe, False)
    served.dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
    return served


def _of_form(form, *rank):
    served = of_rank(*rank)
    served.form = form if isinstance(form, Form) else FORMS[form]
    return served


def served_tensors(folder, form, tp_size, rank, recipe, holds=()):
    config = oracle.read_config(folder)
    served = _of_form(form, disk_names.cache_scale_names(oracle.read_tensors(folder)), config, tp_size, rank, recipe)
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
    return _of_form(form, tensors, config, tp_size, rank, recipe).draft()


def assert_served(load, folder, form, tp, recipe, *words, way="path"):
    for rank in range(tp):
        expected = served_tensors(folder, form, tp, rank, recipe)
        got = load(folder, tp, rank, recipe, *words, way=way)
        assert not isinstance(got, str), got
        assert oracle.differences(got, expected) == []
