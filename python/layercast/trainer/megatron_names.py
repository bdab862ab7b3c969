"""What Megatron-core's parameters of a layer are called in Hugging Face's checkpoints, family by family."""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layercast.errors import InvalidArgument, Unsupported

_EXPERT = re.compile(r"mlp\.experts\.(?:local_experts\.(\d+)\.linear_(fc[12])\.weight|linear_(fc[12])\.weight(\d+)|weight([12]))$")


@dataclass(frozen=True, slots=True)
class Family:
    """By Megatron's names within a layer."""

    name: str  # model_type
    alike: Mapping[str, str]  # what tensor parallel ranks hold alike
    gated: Mapping[str, tuple[str, str]]  # rows of two tensors, one after the other
    columns: Mapping[str, str]
    expert: str = ""  # with {} for its number
    of_an_expert: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")

    def expert_of(self, name: str) -> tuple[str, int | None] | None:
        """("fc1" or "fc2", the expert's number on this rank; None: all in one tensor). None: of no expert."""
        found = _EXPERT.match(name)
        if found is None:
            return None
        local, fc, grouped_fc, grouped, stacked = found.groups()
        if stacked is not None:
            return f"fc{stacked}", None
        return (fc, int(local)) if fc is not None else (grouped_fc, int(grouped))

    def of_expert(self, number: int) -> tuple[str, str, str]:
        if not self.expert:
            raise Unsupported(f"a {self.name} model has no experts: expected a family of mixtures")
        gate, up, down = (f"{self.expert.format(number)}{name}.weight" for name in self.of_an_expert)
        return gate, up, down


def experts_of(fields: Mapping[str, Any]) -> int:
    total: int = fields.get("num_experts") or fields["num_local_experts"]  # transformers 5 writes the latter
    return total


_ATTENTION = {
    "input_layernorm.weight": "input_layernorm.weight",
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
    "self_attention.linear_proj.bias": "self_attn.o_proj.bias",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
}
_COLUMNS = {"self_attention.linear_proj.weight": "self_attn.o_proj.weight", "mlp.linear_fc2.weight": "mlp.down_proj.weight"}
_GATED = {"mlp.linear_fc1.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
          "mlp.linear_fc1.bias": ("mlp.gate_proj.bias", "mlp.up_proj.bias")}  # fmt: skip
_SHARED = "mlp.shared_expert."


def _dense(name: str) -> Family:
    return Family(name, {**_ATTENTION, "mlp.linear_fc2.bias": "mlp.down_proj.bias"}, _GATED, _COLUMNS)


def _mixture(name: str, block: str, **how: Any) -> Family:
    router = {"mlp.router.weight": f"{block}.gate.weight", "mlp.shared_experts.gate_weight": "mlp.shared_expert_gate.weight"}
    gated = {**_GATED, "mlp.shared_experts.linear_fc1.weight": (_SHARED + "gate_proj.weight", _SHARED + "up_proj.weight")}
    columns = {**_COLUMNS, "mlp.shared_experts.linear_fc2.weight": _SHARED + "down_proj.weight"}
    return Family(name, {**_ATTENTION, **router}, gated, columns, block + ".experts.{}.", **how)


_FAMILIES = {family.name: family for family in (
    *map(_dense, ("llama", "mistral", "qwen2", "qwen3")),
    _mixture("qwen2_moe", "mlp"),
    _mixture("qwen3_moe", "mlp"),
    _mixture("mixtral", "block_sparse_moe", of_an_expert=("w1", "w3", "w2")),
)}  # fmt: skip


def family_of(fields: Mapping[str, Any]) -> Family:
    family = _FAMILIES.get(fields.get("model_type", ""))
    if family is None:
        raise Unsupported(
            f"model_type {fields.get('model_type')!r}: layercast.megatron knows {', '.join(_FAMILIES)}"
        )
    return family


def read_config(config: Any) -> Mapping[str, Any]:
    """Of a folder, a dict, or a configuration of transformers."""
    if isinstance(config, (str, os.PathLike)):
        fields: Mapping[str, Any] = json.loads((pathlib.Path(config) / "config.json").read_text())
        return fields
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise InvalidArgument(f"config: expected a folder, a dict or a configuration of transformers, got {config!r:.200}")
    return config
