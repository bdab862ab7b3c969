"""A checkpoint of Hugging Face's as Megatron-core holds it on one rank: modules with its names, attributes and layouts, made
the slow way, from whole tensors in Megatron's form that are then split. Used by the tests of layercast.megatron; those of the
integration hold Megatron-core's own modules against the same."""

import torch
from torch import nn

PAD_VOCABULARY_TO = 16


def put(root, path, tensor, split=None):
    """A parameter at a dotted path. `split`: the dimension that tensor parallel ranks share, as Megatron marks it."""
    *folders, name = path.split(".")
    for folder in folders:
        if folder not in root._modules:
            root.add_module(folder, nn.Module())
        root = root._modules[folder]
    parameter = nn.Parameter(tensor.clone(), requires_grad=False)
    if split is not None:
        parameter.tensor_model_parallel, parameter.partition_dim = True, split
    root.register_parameter(name, parameter)


def qkv(state, attention, kind, groups):
    """Group after group: its queries, its key, its value."""
    parts = [state.pop(f"{attention}.{one}_proj.{kind}") for one in "qkv"]
    return torch.cat([rows for group in zip(*(part.chunk(groups) for part in parts)) for rows in group])


def gated(state, gate, up, tp, rank):
    """Of each rank its part of gate, then its part of up."""
    return torch.cat([state.pop(gate).chunk(tp)[rank], state.pop(up).chunk(tp)[rank]])


class Whole:
    """`state` of a checkpoint, without what was put on some rank: a copy for each rank."""

    def __init__(self, state, config, experts_as):
        self.state, self.config, self.experts_as = state, config, experts_as

    def on(self, tp, rank, pp=1, stage=0, ep=1, expert_rank=0, te=False, chunks=1):
        """The model of a rank, as a list of `chunks` of an interleaved pipeline."""
        state, config = dict(self.state), self.config
        total = config["num_hidden_layers"]
        each = total // (pp * chunks)
        made = []
        for chunk in range(chunks):
            module, first = nn.Module(), (chunk * pp + stage) * each
            if stage == 0 and chunk == 0:
                put(module, "embedding.word_embeddings.weight", self.padded(state["model.embed_tokens.weight"], tp).chunk(tp)[rank], 0)
            for i in range(each):
                self.layer(module, i, first + i, state, tp, rank, ep, expert_rank, te)
            if stage == pp - 1 and chunk == chunks - 1:
                put(module, "decoder.final_layernorm.weight", state["model.norm.weight"].float())
                head = state["model.embed_tokens.weight"] if config["tie_word_embeddings"] else state["lm_head.weight"]
                put(module, "output_layer.weight", self.padded(head, tp).chunk(tp)[rank], 0)
            made.append(module)
        return made

    @staticmethod
    def padded(rows, tp):
        to = -rows.shape[0] % (PAD_VOCABULARY_TO * tp)
        return torch.cat([rows, torch.full((to, rows.shape[1]), float("nan"), dtype=rows.dtype)])

    def layer(self, module, local, number, state, tp, rank, ep, expert_rank, te):
        def at(name):
            return f"decoder.layers.{local}.{name}"

        def hf(name):
            return f"model.layers.{number}.{name}"

        before = {"input_layernorm.weight": "input_layernorm.weight", "post_attention_layernorm.weight": "pre_mlp_layernorm.weight",
                  "self_attn.q_norm.weight": "self_attention.q_layernorm.weight",
                  "self_attn.k_norm.weight": "self_attention.k_layernorm.weight",
                  "self_attn.o_proj.bias": "self_attention.linear_proj.bias", "mlp.down_proj.bias": "mlp.linear_fc2.bias",
                  "mlp.gate.weight": "mlp.router.weight", "block_sparse_moe.gate.weight": "mlp.router.weight",
                  "mlp.shared_expert_gate.weight": "mlp.shared_experts.gate_weight"}
        if te:  # fused into the linear layer behind it
            before |= {"input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight"}
            if hf("mlp.gate_proj.weight") in state:
                before |= {"post_attention_layernorm.weight": "mlp.linear_fc1.layer_norm_weight"}
        for name, held in before.items():
            if hf(name) in state:
                put(module, at(held), state[hf(name)].float() if "norm" in name else state[hf(name)])
        for kind in ("weight", "bias"):
            if hf(f"self_attn.q_proj.{kind}") in state:
                rows = qkv(state, hf("self_attn"), kind, self.config["num_key_value_heads"])
                put(module, at(f"self_attention.linear_qkv.{kind}"), rows.chunk(tp)[rank], 0)
            if hf(f"mlp.gate_proj.{kind}") in state:
                rows = gated(state, hf(f"mlp.gate_proj.{kind}"), hf(f"mlp.up_proj.{kind}"), tp, rank)
                put(module, at(f"mlp.linear_fc1.{kind}"), rows, 0)
        columns = {"self_attn.o_proj.weight": "self_attention.linear_proj.weight", "mlp.down_proj.weight": "mlp.linear_fc2.weight",
                   "mlp.shared_expert.down_proj.weight": "mlp.shared_experts.linear_fc2.weight"}
        for name, held in columns.items():
            if hf(name) in state:
                put(module, at(held), state[hf(name)].chunk(tp, 1)[rank], 1)
        if hf("mlp.shared_expert.gate_proj.weight") in state:
            rows = gated(state, hf("mlp.shared_expert.gate_proj.weight"), hf("mlp.shared_expert.up_proj.weight"), tp, rank)
            put(module, at("mlp.shared_experts.linear_fc1.weight"), rows, 0)
        self.experts(module, at, hf, state, ep, expert_rank)
        module.get_submodule(f"decoder.layers.{local}").layer_number = number + 1

    def experts(self, module, at, hf, state, ep, expert_rank):
        """Each whole on one rank. Modules of their own, or all in two tensors of the grouped product."""
        block, (gate, up, down) = (("block_sparse_moe", ("w1", "w3", "w2")) if self.config["model_type"] == "mixtral" else
                                   ("mlp", ("gate_proj", "up_proj", "down_proj")))
        total = self.config.get("num_local_experts") or self.config.get("num_experts") or 0
        if hf(f"{block}.experts.0.{gate}.weight") not in state:
            return
        here = range(total // ep * expert_rank, total // ep * (expert_rank + 1))
        fc1 = [gated(state, hf(f"{block}.experts.{e}.{gate}.weight"), hf(f"{block}.experts.{e}.{up}.weight"), 1, 0) for e in here]
        fc2 = [state[hf(f"{block}.experts.{e}.{down}.weight")] for e in here]
        if self.experts_as == "stacked":
            hidden = fc1[0].shape[1]
            put(module, at("mlp.experts.weight1"), torch.stack([one.t() for one in fc1]).reshape(hidden, -1), 1)
            put(module, at("mlp.experts.weight2"), torch.stack([one.t() for one in fc2]).reshape(-1, hidden), 0)
            return
        for local, (one, two) in enumerate(zip(fc1, fc2)):
            if self.experts_as == "grouped":
                put(module, at(f"mlp.experts.linear_fc1.weight{local}"), one, 0)
                put(module, at(f"mlp.experts.linear_fc2.weight{local}"), two, 0)  # as Megatron says, though it is 1
            else:
                put(module, at(f"mlp.experts.local_experts.{local}.linear_fc1.weight"), one, 0)
                put(module, at(f"mlp.experts.local_experts.{local}.linear_fc2.weight"), two, 1)
