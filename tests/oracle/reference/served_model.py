"""One rank's kernel tensors, computed layer by layer: the model's half of oracle.py, which reads files and compares."""

import copy

import torch

import disk_names
import recipes
from shards import kv_shard, rows_of, shard, vocabulary_shard

# Those that some family has.
NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


class ServedModel:
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
        local[: len(rows)] = rows_of(weight, rows)
        self.out[name] = local

    def column(self, module, parts):
        """parts: (checkpoint module, rows of it that this rank keeps), one after another in the fused layer."""
        weights = [self.source[f"{part}.weight"] for part, _ in parts]
        local = torch.cat([rows_of(weight, rows) for weight, (_, rows) in zip(weights, parts)])
        whole_amax = torch.stack([weight.abs().amax() for weight in weights]).amax()
        self._quantized(module, local, whole_amax, local.abs().amax(dim=1))
        if f"{parts[0][0]}.bias" in self.source:
            self.out[f"{module}.bias"] = torch.cat([rows_of(self.source[f"{part}.bias"], rows) for part, rows in parts])

    def row(self, module):
        weight = self.source[f"{module}.weight"]
        columns = shard(weight.shape[1], self.t, self.r)
        local = weight[:, columns.start : columns.stop].contiguous()
        self._quantized(module, local, weight.abs().amax(), weight.abs().amax(dim=1))
        self.copy(f"{module}.bias")

    def _quantized(self, module, local, whole_amax, row_amax):
        for suffix, tensor in recipes.quantize(self.recipe, local, whole_amax, row_amax, self.power_of_two).items():
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
                self.out[name] = rows_of(self.source[name], kept)  # one weight for each row of the projection
        self.cache_scales(f"{layer}.{own}.attn")
        sinks = f"{layer}.{own}.sinks"
        if sinks in self.source:
            self.out[sinks] = rows_of(self.source[sinks], shard(len(self.source[sinks]), self.t, self.r))

    def cache_scales(self, module):
        """One for keys and one for values, the same one, or 1."""
        if "kv_cache_scales" not in self.holds:
            return
        for name in ("k_scale", "v_scale"):  # one for keys alone is one for both
            names = (f"{module}.{name}", f"{module}.kv_scale", f"{module}.k_scale")
            scale = next((self.source[name] for name in names if name in self.source), torch.tensor(1.0))
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
        weight = recipes.dequantized(self.out, f"{kv_b_proj}.weight")
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
        for name in ("gate.weight", f"gate.{disk_names.ROUTING_BIAS}", "router.weight", "router.bias"):
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
                self.out[name] = torch.cat([rows_of(self.source[name], rows) for rows in conv])
        for name in ("A_log", "D", "dt_bias", "norm.weight"):
            whole = self.source[f"{layer}.mixer.{name}"]
            self.out[f"{layer}.mixer.{name}"] = rows_of(whole, shard(len(whole), self.t, self.r))
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
        self.out[name] = torch.cat([rows_of(self.source[name], rows) for rows in conv])
        for name in (f"{module}.A_log", f"{module}.dt_bias"):
            self.out[name] = rows_of(self.source[name], shard(len(self.source[name]), self.t, self.r))
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
        if self.config["model_type"] in disk_names.STATE_SPACES:
            self.mixer(layer)
            return
        if f"{layer}.linear_attn.A_log" in self.source:
            self.delta_net(f"{layer}.linear_attn")
        elif f"{layer}.self_attn.kv_b_proj.weight" in self.source:
            self.latent_attention(layer)
        else:
            self.attention(layer)
        is_mixtrals = self.config["model_type"] in disk_names.MIXTRAL_BLOCKS
        block = f"{layer}.block_sparse_moe" if is_mixtrals else f"{layer}.mlp"
        if f"{block}.gate.weight" in self.source or f"{block}.router.weight" in self.source:
            self.mixture(block)
        else:
            self.mlp(block)
        for norm in NORMS:
            self.copy(f"{layer}.{norm}.weight")

    def model(self):
        self.vocabulary("model.embed_tokens.weight")
        for index in range(disk_names.layers_of(self.config)):
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


def decay(a_log):
    return -a_log.double().exp().float()
