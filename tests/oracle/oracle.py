"""What an engine must serve, computed from a checkpoint's files by torch and safetensors alone.

A second, independent and obvious implementation: it imports nothing of Layercast's and shares no code with it. Tests
compare the bytes that `layercast export` reads back with served_tensors() of the same files.
"""

import copy
import json
import pathlib
import re

import safetensors
import torch

RECIPES = ("none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "nvfp4", "int8_per_channel", "mxfp4")
COLUMN_UNITS = {"mxfp8": 32, "mxfp4": 32, "nvfp4": 16}  # a rank's columns must be a multiple
FP8_MAX = 448.0
BLOCK = 128
VOCABULARY_PADDING = 64
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "phi3", "gemma2", "gemma3_text", "mixtral", "qwen2_moe", "qwen3_moe",
            "glm4_moe", "minimax_m2", "gpt_oss", "deepseek_v2", "deepseek_v3", "qwen3_next", "qwen3_5_text",
            "qwen3_5_moe_text", "mamba2", "nemotron_h")
STATE_SPACES = FAMILIES[-2:]
MIXTRAL_BLOCKS = ("mixtral", "minimax_m2")  # families whose mixture is called block_sparse_moe
VISION_TOWERS = ("vision_tower.", "multi_modal_projector.", "visual.")
MIXTRAL_NAMES = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
ROUTING_BIAS = "e_score_correction_bias"
IN_FP32 = (ROUTING_BIAS, ".linear_attn.A_log")  # whatever the model's dtype
SCALES = ("_scale", ".scale")  # in fp32 likewise
# What checkpoints call the scales of a key/value cache -> what the attention layer's own "attn" does: vLLM's table.
CACHE_SCALES = ((r"\.kv_scale$", r".attn.kv_scale"),
                (r"\.(self_attn|mixer)\.[kv]_proj\.([kv])_scale$", r".\1.attn.\2_scale"),
                (r"\.self_attn\.qk(?:qk)?v_proj\.([kv])_scale$", r".self_attn.attn.\1_scale"),
                (r"\.self_attn\.([kv])_cache\.scale$", r".self_attn.attn.\1_scale"),
                (r"\.([kv])_proj\.output_scale$", r".attn.\1_scale"),
                (r"(?<!\.attn)\.([kv])_scale$", r".attn.\1_scale"))
# Those that some family has.
NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


# Files.


def read_config(folder):
    return json.loads((pathlib.Path(folder) / "config.json").read_text())


def read_tensors(folder):
    """name -> tensor of a checkpoint folder, through its index where it has one."""
    folder = pathlib.Path(folder)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    else:
        files = ["model.safetensors"]
    return _read_files(folder / file for file in files)


def read_export(folder, rank):
    """name -> tensor of one rank, as `layercast export` wrote it."""
    parts = sorted(pathlib.Path(folder).glob(f"model-rank-{rank}-part-*.safetensors"))
    if not parts:
        raise FileNotFoundError(f"no model-rank-{rank}-part-*.safetensors in {folder}")
    return _read_files(parts)


def _read_files(paths):
    tensors = {}
    for path in paths:
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():
                if name in tensors:
                    raise ValueError(f"{path}: {name} is there twice")
                tensors[name] = file.get_tensor(name)
    return tensors


# Sharding: half-open ranges of a checkpoint tensor's rows (or columns) that rank r of t keeps.


def shard(size, t, r):
    if size % t != 0:
        raise ValueError(f"{size} is not divisible by {t}")
    return range(r * size // t, (r + 1) * size // t)


def kv_shard(rows, heads, t, r):
    """Rows of k or v: every rank has at least one head, so heads are repeated where there are more ranks."""
    if t <= heads:
        return shard(rows, t, r)
    if t % heads != 0:
        raise ValueError(f"{t} is not divisible by {heads}")
    return shard(rows, heads, r // (t // heads))


def padded_vocabulary(size):
    return -(-size // VOCABULARY_PADDING) * VOCABULARY_PADDING


def vocabulary_shard(size, t, r):
    """Rows that are there, and how many rows this rank holds with padding."""
    rows = shard(padded_vocabulary(size), t, r)
    return range(min(rows.start, size), min(rows.stop, size)), len(rows)


def _rows(tensor, wanted):
    return tensor[wanted.start : wanted.stop]


# Recipes: `whole` is the fused weight of all ranks, `local` this rank's part of it, both in the model's dtype.


def quantize(recipe, local, whole_amax, row_amax, power_of_two=False):
    """suffix -> tensor. whole_amax: of the whole fused weight. row_amax: of this rank's rows, over the columns of all
    ranks."""
    if recipe == "none":
        return {"weight": local}
    if recipe == "fp8_per_tensor":
        return _per_tensor(local.float(), whole_amax)
    if recipe == "fp8_per_channel":
        return _per_channel(local.float(), row_amax)
    if recipe == "fp8_per_block":
        return _per_block(local.float(), power_of_two)
    if recipe == "mxfp8":
        return _mxfp8(local.float())
    if recipe == "mxfp4":
        return _mxfp4(local.float())
    if recipe == "nvfp4":
        return _nvfp4(local.float(), whole_amax)
    if recipe == "int8_per_channel":
        return _int8(local.float(), row_amax)
    raise ValueError(f"no recipe {recipe}")


def _fp8(values):
    return values.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def _per_tensor(w, amax):
    scale = amax.float().reshape(1) / FP8_MAX
    reciprocal = 1.0 / scale
    if torch.isinf(reciprocal):  # all zero, or so small that it might as well be
        return {"weight": torch.zeros_like(w).to(torch.float8_e4m3fn), "weight_scale": torch.zeros(1)}
    return {"weight": _fp8(w * reciprocal), "weight_scale": scale}


def _per_channel(w, row_amax):
    scale = torch.clamp(row_amax.float() / FP8_MAX, min=1.0 / (FP8_MAX * 512.0)).reshape(-1, 1)
    return {"weight": _fp8(w / scale), "weight_scale": scale}


def _per_block(w, power_of_two):
    n, k = w.shape
    block_rows, block_columns = -(-n // BLOCK), -(-k // BLOCK)
    padded = torch.zeros(block_rows * BLOCK, block_columns * BLOCK)
    padded[:n, :k] = w
    blocks = padded.view(block_rows, BLOCK, block_columns, BLOCK)
    scale = blocks.abs().amax(dim=(1, 3)).clamp(min=1e-4) / FP8_MAX
    if power_of_two:
        scale = _round_up_to_power_of_two(scale)
    quantized = blocks * (1.0 / scale)[:, None, :, None]
    values = quantized.reshape(padded.shape)[:n, :k].to(torch.float8_e4m3fn)
    return {"weight": values.contiguous(), "weight_scale_inv": scale}


def _round_up_to_power_of_two(scale):
    mantissa, exponent = torch.frexp(scale)  # scale = mantissa * 2^exponent, 0.5 <= mantissa < 1
    return torch.where(mantissa == 0.5, scale, torch.ldexp(torch.ones_like(scale), exponent))


def _in_power_of_two_units(w, largest):
    """Blocks of 32 columns in units of the smallest power of two that amax / largest does not exceed, from 2^-127 on;
    and its biased exponent."""
    n, k = w.shape
    blocks = w.reshape(n, k // 32, 32).double()
    powers = torch.exp2(torch.arange(-127, 128).double())
    index = torch.searchsorted(powers * largest, blocks.abs().amax(dim=2))
    return (blocks / powers[index][:, :, None]).float().reshape(n, k), index.to(torch.uint8)


def _mxfp8(w):
    values, exponents = _in_power_of_two_units(w, FP8_MAX)
    return {"weight": values.to(torch.float8_e4m3fn), "weight_scale": exponents}


def _mxfp4(w):
    values, exponents = _in_power_of_two_units(w, 6.0)
    return {"weight": _packed(_e2m1(values)), "weight_scale": exponents}


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def _e2m1(values):
    """Codes: the nearest magnitude (the last one for all beyond), of two that are as near the even code; bit 3: sign."""
    magnitude = values.abs()
    distance = (magnitude[..., None].double() - E2M1).abs()
    nearest = distance.amin(dim=-1, keepdim=True)
    candidates = (distance == nearest).int() * torch.tensor([2, 1] * 4)  # an even code counts more than an odd one
    return torch.where(torch.signbit(values), 8, 0) | candidates.argmax(dim=-1)


def _packed(codes):
    """Two in a byte, the even column's in its low half."""
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)


def _nvfp4(w, amax):
    n, k = w.shape
    g = torch.tensor(FP8_MAX * 6.0) / amax.float()
    if torch.isinf(g * 512):  # all zero, or so small that it might as well be
        return {"weight": torch.zeros(n, k // 2, dtype=torch.uint8),
                "weight_scale": torch.zeros(n, k // 16).to(torch.float8_e4m3fn), "weight_scale_2": torch.zeros(1)}
    blocks = w.reshape(n, k // 16, 16)
    scale = (g * (blocks.abs().amax(dim=2) / 6.0)).to(torch.float8_e4m3fn)
    codes = _e2m1(blocks * (g / scale.float())[:, :, None])
    codes = torch.where((scale.float() == 0)[:, :, None], 0, codes).reshape(n, k)
    return {"weight": _packed(codes), "weight_scale": scale, "weight_scale_2": (1.0 / g).reshape(1)}


def _int8(w, row_amax):
    scale = (row_amax.float() / 127.0).reshape(-1, 1)
    values = torch.where(scale == 0, 0.0, (w / scale).round().clamp(-127, 127))
    return {"weight": values.to(torch.int8), "weight_scale": scale}


def dequantized(served, name):
    """fp32 weight `name`, a matrix or a stack of them, as a kernel reads it; None if it is not quantized."""
    values, scale = served[name], served.get(f"{name}_scale")

    def of_each_matrix(numbers):
        return numbers.view(-1, 1, 1) if values.dim() == 3 else numbers

    if f"{name}_scale_inv" in served:
        blocks = served[f"{name}_scale_inv"].repeat_interleave(BLOCK, -2).repeat_interleave(BLOCK, -1)
        return values.float() * blocks[..., : values.shape[-2], : values.shape[-1]]
    if scale is None:
        return None
    if values.dtype == torch.uint8:
        codes = torch.stack([values & 15, values >> 4], dim=-1).flatten(-2).long()
        values = torch.where(codes < 8, E2M1[codes & 7], -E2M1[codes & 7])
    if f"{name}_scale_2" in served:
        return values * (scale.float() * of_each_matrix(served[f"{name}_scale_2"])).repeat_interleave(16, -1)
    if scale.dtype == torch.uint8:
        return values.float() * torch.exp2(scale.float() - 127).repeat_interleave(32, -1)
    return values.float() * (of_each_matrix(scale) if scale.dim() == 1 else scale)


# The model.


class _Served:
    """One rank's kernel tensors, gathered layer by layer."""

    holds = ()  # of "input_scales", "kv_cache_scales": what an engine may have beside its weights

    def __init__(self, checkpoint, config, t, r, recipe, power_of_two):
        self.source, self.config = checkpoint, config
        self.t, self.r = t, r
        self.recipe, self.power_of_two = recipe, power_of_two
        self.out = {}

    def copy(self, name):
        if name in self.source:
            self.out[name] = self.source[name]

    def vocabulary(self, name):
        weight = self.source[name]
        rows, held = vocabulary_shard(weight.shape[0], self.t, self.r)
        local = torch.zeros((held, weight.shape[1]), dtype=weight.dtype)
        local[: len(rows)] = _rows(weight, rows)
        self.out[name] = local

    def column(self, module, parts):
        """parts: (checkpoint module, rows of it that this rank keeps), one after another in the fused layer."""
        weights = [self.source[f"{part}.weight"] for part, _ in parts]
        local = torch.cat([_rows(weight, rows) for weight, (_, rows) in zip(weights, parts)])
        whole_amax = torch.stack([weight.abs().amax() for weight in weights]).amax()
        self._quantized(module, local, whole_amax, local.abs().amax(dim=1))
        if f"{parts[0][0]}.bias" in self.source:
            self.out[f"{module}.bias"] = torch.cat([_rows(self.source[f"{part}.bias"], rows) for part, rows in parts])

    def row(self, module):
        weight = self.source[f"{module}.weight"]
        columns = shard(weight.shape[1], self.t, self.r)
        local = weight[:, columns.start : columns.stop].contiguous()
        self._quantized(module, local, weight.abs().amax(), weight.abs().amax(dim=1))
        self.copy(f"{module}.bias")

    def _quantized(self, module, local, whole_amax, row_amax):
        for suffix, tensor in quantize(self.recipe, local, whole_amax, row_amax, self.power_of_two).items():
            self.out[f"{module}.{suffix}"] = tensor

    def attention(self, layer, own="self_attn"):
        heads = self.config["num_key_value_heads"]
        parts = []
        for name in ("q_proj", "k_proj", "v_proj"):
            rows = self.source[f"{layer}.{own}.{name}.weight"].shape[0]
            kept = shard(rows, self.t, self.r) if name == "q_proj" else kv_shard(rows, heads, self.t, self.r)
            parts.append((f"{layer}.{own}.{name}", kept))
        self.column(f"{layer}.{own}.qkv_proj", parts)
        self.row(f"{layer}.{own}.o_proj")
        for norm, (projection, kept) in zip(("q_norm", "k_norm"), parts):
            name = f"{layer}.{own}.{norm}.weight"
            self.copy(name)
            if name in self.source and len(self.source[name]) == len(self.source[f"{projection}.weight"]):
                self.out[name] = _rows(self.source[name], kept)  # one weight for each row of the projection
        self.cache_scales(f"{layer}.{own}.attn")
        sinks = f"{layer}.{own}.sinks"
        if sinks in self.source:
            self.out[sinks] = _rows(self.source[sinks], shard(len(self.source[sinks]), self.t, self.r))

    def cache_scales(self, module):
        """One for keys and one for values, the same one, or 1."""
        if "kv_cache_scales" not in self.holds:
            return
        for name in ("k_scale", "v_scale"):
            scale = self.source.get(f"{module}.{name}", self.source.get(f"{module}.kv_scale", torch.tensor(1.0)))
            self.out[f"{module}.{name}"] = scale.float().reshape(1)

    def latent_attention(self, layer):
        """What makes the small vectors is everybody's; the rest is split by heads."""
        own = f"{layer}.self_attn"
        small = [f"{own}.{name}" for name in ("q_a_proj", "kv_a_proj_with_mqa") if f"{own}.{name}.weight" in self.source]
        whole = [(part, range(self.source[f"{part}.weight"].shape[0])) for part in small]
        self.column(f"{own}.fused_qkv_a_proj" if len(small) == 2 else small[0], whole)
        for name in ("q_proj", "q_b_proj", "kv_b_proj"):
            if f"{own}.{name}.weight" in self.source:
                rows = self.source[f"{own}.{name}.weight"].shape[0]
                self.column(f"{own}.{name}", [(f"{own}.{name}", shard(rows, self.t, self.r))])
        self.row(f"{own}.o_proj")
        self.cache_scales(f"{own}.attn")
        self.copy(f"{own}.q_a_layernorm.weight")
        self.copy(f"{own}.kv_a_layernorm.weight")
        self.derive(f"{own}.kv_b_proj", self.source[f"{own}.kv_a_layernorm.weight"].dtype)

    def derive(self, kv_b_proj, dtype):
        """Of the weight as it is served: where it is quantized, dequantized to the model's dtype."""
        c = self.config
        keys, values, heads = c["qk_nope_head_dim"], c["v_head_dim"], c["num_attention_heads"] // self.t
        weight = dequantized(self.out, f"{kv_b_proj}.weight")
        weight = self.out[f"{kv_b_proj}.weight"] if weight is None else weight.to(dtype)
        uk, uv = weight.T.reshape(-1, heads, keys + values).split([keys, values], dim=-1)
        self.out[f"{kv_b_proj}.W_UK_T"] = uk.permute(1, 2, 0)
        self.out[f"{kv_b_proj}.W_UV"] = uv.transpose(0, 1)

    def mlp(self, module):
        if f"{module}.gate_proj.weight" not in self.source:
            rows = shard(self.source[f"{module}.up_proj.weight"].shape[0], self.t, self.r)
            self.column(f"{module}.up_proj", [(f"{module}.up_proj", rows)])
            self.row(f"{module}.down_proj")
            return
        names = [f"{module}.gate_proj", f"{module}.up_proj"]
        rows = shard(self.source[f"{names[0]}.weight"].shape[0], self.t, self.r)
        self.column(f"{module}.gate_up_proj", [(name, rows) for name in names])
        self.row(f"{module}.down_proj")

    def mixture(self, module):
        for name in ("gate.weight", f"gate.{ROUTING_BIAS}", "router.weight", "router.bias"):
            self.copy(f"{module}.{name}")
        for latent in ("fc1_latent_proj", "fc2_latent_proj"):
            if f"{module}.{latent}.weight" in self.source:
                rows = range(self.source[f"{module}.{latent}.weight"].shape[0])
                self.column(f"{module}.{latent}", [(f"{module}.{latent}", rows)])
        self.experts(f"{module}.experts")
        for shared in ("shared_expert", "shared_experts"):
            if f"{module}.{shared}.up_proj.weight" in self.source:
                self.mlp(f"{module}.{shared}")
        self.copy(f"{module}.shared_expert_gate.weight")

    def experts(self, module):
        """Each expert is a layer of its own; then they are stacked."""
        count = 1 + max(int(name.removeprefix(f"{module}.").partition(".")[0])
                        for name in self.source if name.startswith(f"{module}."))
        w13, w2 = [], []
        for expert in range(count):
            alone = copy.copy(self)
            alone.out = {}
            alone.mlp(f"{module}.{expert}")
            of = {name.removeprefix(f"{module}.{expert}."): tensor for name, tensor in alone.out.items()}
            w13.append({name.rpartition(".")[2]: of[name] for name in of if name.startswith(("gate_up_proj.", "up_proj."))})
            w2.append({name.removeprefix("down_proj."): of[name] for name in of if name.startswith("down_proj.")})
        for name, parts in (("w13", w13), ("w2", w2)):
            for suffix in parts[0]:
                stack = torch.stack([part[suffix] for part in parts])
                if (name, suffix) == ("w2", "bias") and self.r > 0:
                    stack = torch.zeros_like(stack)  # added to a sum over ranks
                self.out[f"{module}.{name}_{suffix}"] = stack.squeeze(1) if stack.dim() == 2 else stack

    def mamba(self, layer):
        """Rows of x and gate by heads, of B and C by groups (a single one is everybody's), of time steps by heads."""
        c = self.config
        prefix = "mamba_" if "mamba_num_heads" in c else ""
        heads, groups = c[f"{prefix}num_heads"], c["n_groups"]
        inner, of_groups = heads * c[f"{prefix}head_dim"], groups * c["ssm_state_size" if prefix else "state_size"]
        conv = self.local_ranges([(inner, True), (of_groups, groups > 1), (of_groups, groups > 1)])
        projection = self.local_ranges([(inner, True), (inner, True), (of_groups, groups > 1), (of_groups, groups > 1),
                                        (heads, True)])
        self.column(f"{layer}.mixer.in_proj", [(f"{layer}.mixer.in_proj", rows) for rows in projection])
        self.row(f"{layer}.mixer.out_proj")
        for suffix in ("weight", "bias"):
            name = f"{layer}.mixer.conv1d.{suffix}"
            if name in self.source:
                self.out[name] = torch.cat([_rows(self.source[name], rows) for rows in conv])
        for name in ("A_log", "D", "dt_bias", "norm.weight"):
            whole = self.source[f"{layer}.mixer.{name}"]
            self.out[f"{layer}.mixer.{name}"] = _rows(whole, shard(len(whole), self.t, self.r))
        self.out[f"{layer}.mixer.A"] = decay(self.out[f"{layer}.mixer.A_log"])

    def delta_net(self, module):
        """Rows by key heads, as the checkpoint has them; or each part's rows by heads, from four tensors."""
        c = self.config
        keys, values = (c[f"linear_num_{kind}_heads"] * c[f"linear_{kind}_head_dim"] for kind in ("key", "value"))
        conv = self.local_ranges([(keys, True), (keys, True), (values, True)])
        if f"{module}.in_proj_qkvz.weight" in self.source:
            qkvz, ba = ([(f"{module}.in_proj_{name}", shard(len(self.source[f"{module}.in_proj_{name}.weight"]), self.t,
                                                             self.r))] for name in ("qkvz", "ba"))
        else:
            heads = shard(c["linear_num_value_heads"], self.t, self.r)
            qkvz = [(f"{module}.in_proj_qkv", rows) for rows in conv]
            qkvz.append((f"{module}.in_proj_z", shard(values, self.t, self.r)))
            ba = [(f"{module}.in_proj_b", heads), (f"{module}.in_proj_a", heads)]
        self.column(f"{module}.in_proj_qkvz", qkvz)
        self.column(f"{module}.in_proj_ba", ba)
        self.row(f"{module}.out_proj")
        name = f"{module}.conv1d.weight"
        self.out[name] = torch.cat([_rows(self.source[name], rows) for rows in conv])
        for name in (f"{module}.A_log", f"{module}.dt_bias"):
            self.out[name] = _rows(self.source[name], shard(len(self.source[name]), self.t, self.r))
        self.out[f"{module}.A"] = decay(self.out[f"{module}.A_log"])
        self.copy(f"{module}.norm.weight")

    def mixer(self, layer):
        self.copy(f"{layer}.norm.weight")
        kinds = {"A_log": self.mamba, "q_proj.weight": lambda layer: self.attention(layer, "mixer"),
                 "up_proj.weight": lambda layer: self.mlp(f"{layer}.mixer"),
                 "gate.weight": lambda layer: self.mixture(f"{layer}.mixer")}
        next(place for name, place in kinds.items() if f"{layer}.mixer.{name}" in self.source)(layer)

    def local_ranges(self, parts):
        """parts: (rows, whether ranks share them out), one after another. The ranges that this rank keeps."""
        ranges, begin = [], 0
        for rows, is_shared_out in parts:
            kept = shard(rows, self.t, self.r) if is_shared_out else range(rows)
            ranges.append(range(begin + kept.start, begin + kept.stop))
            begin += rows
        return ranges

    def decoder_layer(self, layer):
        if self.config["model_type"] in STATE_SPACES:
            self.mixer(layer)
            return
        if f"{layer}.linear_attn.A_log" in self.source:
            self.delta_net(f"{layer}.linear_attn")
        elif f"{layer}.self_attn.kv_b_proj.weight" in self.source:
            self.latent_attention(layer)
        else:
            self.attention(layer)
        block = f"{layer}.block_sparse_moe" if self.config["model_type"] in MIXTRAL_BLOCKS else f"{layer}.mlp"
        if f"{block}.gate.weight" in self.source or f"{block}.router.weight" in self.source:
            self.mixture(block)
        else:
            self.mlp(block)
        for norm in NORMS:
            self.copy(f"{layer}.{norm}.weight")

    def model(self):
        self.vocabulary("model.embed_tokens.weight")
        for index in range(layers_of(self.config)):
            self.decoder_layer(f"model.layers.{index}")
        self.copy("model.norm.weight")
        if not self.config.get("tie_word_embeddings", False):
            self.vocabulary("lm_head.weight")
        return {name: tensor.contiguous() for name, tensor in self.out.items()}

    def draft(self):
        """Of a draft model: what is not the target's."""
        layers = {".".join(name.split(".")[:3]) for name in self.source if name.startswith("draft.layers.")}
        for layer in sorted(layers):
            self.decoder_layer(layer)
            for name in ("enorm", "hnorm", "eh_proj", "shared_head.norm", "hidden_norm"):
                self.copy(f"{layer}.{name}.weight")
        for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
            self.copy(f"draft.{norm}.weight")
        if "draft.pre_fc_norm_hidden.weight" in self.source:
            rows = len(self.source["draft.fc.weight"])
            self.column("draft.fc", [("draft.fc", shard(rows, self.t, self.r))])
        else:
            for name in ("fc.weight", "fc.bias", "d2t"):
                self.copy(f"draft.{name}")
        if "draft.lm_head.weight" in self.source:
            self.vocabulary("draft.lm_head.weight")
        return {name: tensor.contiguous() for name, tensor in self.out.items()}


def text_part(config, tensors):
    """The language model of a vision-language one, under the names that it has alone."""
    prefixes = {"language_model.model.": "model.", "model.language_model.": "model.", "language_model.lm_head.": "lm_head."}
    renamed = {}
    for name, tensor in tensors.items():
        if name.removeprefix("model.").startswith(VISION_TOWERS):
            continue
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
        renamed[prefixes.get(prefix, "") + name.removeprefix(prefix)] = tensor
    return {**config, **config.get("text_config", {})}, renamed


def decay(a_log):
    return -a_log.double().exp().float()


def decoder_names(config, tensors):
    """Under the names that most decoders have."""
    if config["model_type"] not in STATE_SPACES:
        return tensors
    usual = {"embeddings": "embed_tokens", "norm_f": "norm"}
    renamed = {}
    for name, tensor in tensors.items():
        root, _, rest = name.partition(".")  # backbone, or model as transformers holds it in memory
        part, _, last = rest.partition(".")
        renamed[name if root == "lm_head" else f"model.{usual.get(part, part)}.{last}"] = tensor
    return renamed


def of_gpt_oss(expert, name, values):
    """One expert's part of a stacked tensor: a matrix that is transposed, or a bias; gate and up alternate."""
    suffix = "bias" if name.endswith("_bias") else "weight"
    rows = values if suffix == "bias" else values.T
    if name.startswith("gate_up_proj"):
        return {f"{expert}.gate_proj.{suffix}": rows[0::2], f"{expert}.up_proj.{suffix}": rows[1::2]}
    return {f"{expert}.down_proj.{suffix}": rows}


def one_by_one(config, tensors):
    """Experts under one set of names, whatever the checkpoint's: each with its gate, up and down."""
    apart = {}
    for name, tensor in tensors.items():
        if config["model_type"] in MIXTRAL_BLOCKS:
            name = name.replace(".mlp.", ".block_sparse_moe.")
            name = name.replace(f".block_sparse_moe.{ROUTING_BIAS}", f".block_sparse_moe.gate.{ROUTING_BIAS}")
            for short, own in MIXTRAL_NAMES.items():
                name = name.replace(f".{short}.weight", f".{own}.weight")
        module, _, last = name.rpartition(".")
        if not module.endswith(".experts"):
            apart[name] = tensor
            continue
        for expert, matrix in enumerate(tensor):
            if config["model_type"] == "gpt_oss":
                apart |= of_gpt_oss(f"{module}.{expert}", last, matrix)
            elif last == "gate_up_proj":
                apart[f"{module}.{expert}.gate_proj.weight"], apart[f"{module}.{expert}.up_proj.weight"] = matrix.chunk(2)
            else:
                apart[f"{module}.{expert}.{last}.weight"] = matrix
    return apart


def unfused(config, tensors):
    """What is fused on disk, taken apart: rows of q, k, v and of gate, up; experts."""
    if config["model_type"] in STATE_SPACES:
        return one_by_one(config, tensors)
    queries, keys = (config[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    apart = {}
    for name, tensor in one_by_one(config, tensors).items():
        module, _, suffix = name.rpartition(".")
        if module.endswith(".qkv_proj"):
            head = tensor.shape[0] // (queries + 2 * keys)
            parts = tensor.split([queries * head, keys * head, keys * head])
            names = ("q_proj", "k_proj", "v_proj")
        elif module.endswith(".gate_up_proj"):
            parts, names = tensor.chunk(2), ("gate_proj", "up_proj")
        else:
            apart[name] = tensor
            continue
        for part, part_name in zip(parts, names, strict=True):
            apart[f"{module.rpartition('.')[0]}.{part_name}.{suffix}"] = part
    return apart


def cache_scale_names(tensors):
    """The scales of key/value caches under one set of names."""
    renamed = {}
    for name, tensor in tensors.items():
        for pattern, own in CACHE_SCALES:
            if re.search(pattern, name) and ".attn." not in name:
                name = re.sub(pattern, own, name)
        renamed[name] = tensor
    return renamed


def in_served_dtypes(tensors, dtype):
    def served(name):
        return torch.float32 if name.endswith(IN_FP32 + SCALES) else dtype

    return {name: tensor.to(served(name)) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def layers_of(config):
    return config.get("num_hidden_layers") or len(config["layers_block_type"])


def stage_sizes(layers, stages):
    """How many layers each stage of a pipeline has: the ones before the last take what remains, from the back on."""
    sizes = [layers // stages] * stages
    for back in range(layers % stages):
        sizes[-2 - back] += 1
    return sizes


def of_stage(served, config, sizes, stage):
    """What one stage serves of what a rank without stages does."""
    begin, last = sum(sizes[:stage]), stage == len(sizes) - 1
    layers = range(begin, begin + sizes[stage])

    def is_here(name):
        if name.startswith("model.layers."):
            return int(name.split(".")[2]) in layers
        if name.startswith("model.embed_tokens."):
            return stage == 0 or (last and config.get("tie_word_embeddings", False))
        return last

    return {name: tensor for name, tensor in served.items() if is_here(name)}


def served_tensors(folder, tp_size, rank, recipe="none", power_of_two_scales=False, sizes=None, stage=0, holds=()):
    """name -> tensor: every kernel tensor that rank `rank` of `tp_size` serves after loading the checkpoint. `sizes`: of
    a pipeline, the layers of each stage. `holds`: as _Served says."""
    config, tensors = text_part(read_config(folder), read_tensors(folder))
    if config["model_type"] not in FAMILIES:
        raise ValueError(f"{folder}: no family {config['model_type']}")
    dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
    checkpoint = in_served_dtypes(unfused(config, cache_scale_names(decoder_names(config, tensors))), dtype)
    served = _Served(checkpoint, config, tp_size, rank, recipe, power_of_two_scales)
    served.holds = holds
    return of_stage(served.model(), config, sizes or [layers_of(config)], stage)


def draft_names(config, tensors):
    """The draft layers of a target's checkpoint, and of them what is not the target's."""
    renamed = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[0] == "mtp":
            parts[0] = "draft"
        elif parts[:2] == ["model", "layers"] and int(parts[2]) >= layers_of(config):
            parts[0] = "draft"
        else:
            continue
        if parts[-2] not in ("embed_tokens", "head"):
            renamed[".".join(parts)] = tensor
    return renamed


def served_draft(folder, tp_size, rank, recipe="none", eagle=None):
    """name -> tensor: what a rank serves of the draft model beside a target: of the target's checkpoint, or of a folder
    of its own, which no recipe applies to."""
    config, tensors = text_part(read_config(folder), read_tensors(folder))
    dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
    if eagle is None:
        tensors = draft_names(config, tensors)
    else:
        config, recipe = read_config(eagle), "none"
        tensors = {f"draft.{name}".replace("draft.midlayer.", "draft.layers.0."): tensor
                   for name, tensor in read_tensors(eagle).items()
                   if name.split(".")[0] not in ("embed_tokens", "t2d")}
    checkpoint = in_served_dtypes(unfused(config, tensors), dtype)
    return _Served(checkpoint, config, tp_size, rank, recipe, False).draft()


# Comparing.


def raw_bytes(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8)


def differences(served, expected):
    """One line for each difference of two dictionaries of tensors: names, dtypes, shapes, the first differing byte."""
    lines = [f"{name}: served, and not expected" for name in sorted(served.keys() - expected.keys())]
    lines += [f"{name}: expected, and not served" for name in sorted(expected.keys() - served.keys())]
    for name in sorted(served.keys() & expected.keys()):
        got, want = served[name], expected[name]
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            lines.append(f"{name}: served {got.dtype} {list(got.shape)}, expected {want.dtype} {list(want.shape)}")
            continue
        unequal = (raw_bytes(got) != raw_bytes(want)).nonzero()
        if len(unequal):
            first = unequal[0].item()
            lines.append(f"{name}: {len(unequal)} bytes differ, first at {first}: served {raw_bytes(got)[first]}, "
                         f"expected {raw_bytes(want)[first]}")
    return lines
