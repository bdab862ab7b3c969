"""Megatron-core's parameters as boxes of the tensors that Hugging Face's checkpoints have: which rows and columns of which
tensor a rank's parameter is. Used by layercast.megatron."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from layercast.errors import FailedPrecondition, Unsupported
from layercast.trainer.megatron_names import Family, experts_of, family_of

Part = tuple[str, Any, tuple[tuple[int, ...], tuple[int, ...]]]  # name, tensor, (whole shape, offsets)


class Split(NamedTuple):
    """One of the ranks among which something is split."""

    rank: int = 0
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where this process stands: Megatron's ``parallel_state``, by default."""

    tensor: Split = Split()
    experts: Split = Split()  # expert model parallel
    of_expert: Split = Split()  # expert tensor parallel: how one expert is split
    dense: bool = True  # publishes what is in no expert: the first of its data parallel ranks
    expert: bool = True  # publishes its experts: the first of its expert data parallel ranks


class MegatronReader:
    """Reads the parameters of one rank. Offsets follow from the rank's number: Megatron splits evenly."""

    def __init__(self, fields: Mapping[str, Any], dtype: Any, ranks: Ranks) -> None:
        """``fields``: of config.json. ``dtype``: of floating-point tensors; None: as they are."""
        self._family: Family = family_of(fields)
        self._fields, self._dtype, self._ranks = fields, dtype, ranks

    def chunk(self, chunk: Any) -> Iterator[Part]:
        tensors = [*chunk.named_parameters(), *chunk.named_buffers()]
        for held, tensor in tensors:
            if held.endswith("._extra_state") or tensor.numel() == 0 or "rotary_pos_emb" in held:
                continue
            place = re.search(r"(^|\.)(embedding|decoder|output_layer)\..*$", held)
            name = held[place.start(2) :] if place else held
            value = tensor.detach()
            if self._dtype is not None and value.is_floating_point() and value.dtype != self._dtype:
                value = value.to(self._dtype)
            layer = re.match(r"decoder\.layers\.(\d+)\.(.*)$", name)
            if layer is None:
                yield from self._outside(name, value)
            else:
                module = chunk.get_submodule(held[: place.start(2) if place else 0] + f"decoder.layers.{layer[1]}")
                yield from self._of_layer(f"model.layers.{module.layer_number - 1}.", layer[2], value, held)

    def _outside(self, name: str, value: Any) -> Iterator[Part]:
        if name == "decoder.final_layernorm.weight":
            yield from self._alike("model.norm.weight", value)
        elif name == "embedding.word_embeddings.weight":
            yield from self._vocabulary("model.embed_tokens.weight", value)
        elif name != "output_layer.weight":
            raise Unsupported(f"parameter '{name}': layercast.megatron does not know it")
        elif not self._fields.get("tie_word_embeddings"):
            yield from self._vocabulary("lm_head.weight", value)

    def _of_layer(self, layer: str, name: str, value: Any, held: str) -> Iterator[Part]:
        expert = self._family.expert_of(name)
        if expert is not None:
            yield from self._experts(layer, expert, value)
        elif (alike := self._family.alike.get(name)) is not None:
            yield from self._alike(layer + alike, value)
        elif name.startswith("self_attention.linear_qkv."):
            yield from self._groups(layer + "self_attn.", name.rpartition(".")[2], value)
        elif (rows := self._family.gated.get(name)) is not None:
            if self._ranks.dense:
                yield from _halves(layer, rows, value, self._ranks.tensor)
        elif (columns := self._family.columns.get(name)) is not None:
            if self._ranks.dense:
                yield _columns(layer + columns, value, self._ranks.tensor)
        else:
            raise Unsupported(f"parameter '{held}': layercast.megatron does not know it in a {self._family.name} model")

    def _alike(self, name: str, value: Any) -> Iterator[Part]:
        """What all tensor parallel ranks hold."""
        if self._ranks.dense and self._ranks.tensor.rank == 0:
            yield name, value, (tuple(value.shape), (0,) * value.dim())

    def _vocabulary(self, name: str, value: Any) -> Iterator[Part]:
        """Rows, of which Megatron has some more than the vocabulary, so that they can be split evenly."""
        begin, vocabulary = self._ranks.tensor.rank * value.shape[0], self._fields["vocab_size"]
        rows = min(value.shape[0], vocabulary - begin)
        if self._ranks.dense and rows > 0:
            yield name, value[:rows], ((vocabulary, value.shape[1]), (begin, 0))

    def _groups(self, attention: str, kind: str, value: Any) -> Iterator[Part]:
        """Group after group: the rows of its queries, of its key, of its value."""
        heads, width = self._fields["num_attention_heads"], self._fields.get("head_dim")
        groups = self._fields.get("num_key_value_heads") or heads
        width = width or self._fields["hidden_size"] // heads
        each, here = heads // groups, value.shape[0] // ((heads // groups + 2) * width)
        if here * self._ranks.tensor.ranks != groups or value.shape[0] != here * (each + 2) * width:
            raise FailedPrecondition(
                f"tensor '{attention}qkv': expected {groups} groups of {each} + 2 heads of {width} rows over "
                f"{self._ranks.tensor.ranks} ranks, got {value.shape[0]} rows on this one"
            )
        if not self._ranks.dense:
            return
        by_group = value.view(here, each + 2, width, *value.shape[1:])
        for name, begin, of_group in (("q_proj", 0, each), ("k_proj", each, 1), ("v_proj", each + 1, 1)):
            rows = by_group[:, begin : begin + of_group].reshape(-1, *value.shape[1:])  # copies, of more than one group
            yield from _rows(f"{attention}{name}.{kind}", rows, self._ranks.tensor)

    def _experts(self, layer: str, expert: tuple[str, int | None], value: Any) -> Iterator[Part]:
        """One expert, or all that this rank has in one tensor."""
        if not self._ranks.expert:
            return
        kind, local = expert
        here = experts_of(self._fields) // self._ranks.experts.ranks
        first = self._ranks.experts.rank * here
        if local is not None:
            stack = [(first + local, value)]
        elif kind == "fc1":  # [hidden, experts x 2 intermediate], in memory expert after expert
            stack = [(first + i, one.t()) for i, one in enumerate(value.view(here, value.shape[0], -1))]
        else:
            stack = [(first + i, one.t()) for i, one in enumerate(value.view(here, -1, value.shape[1]))]
        for number, one in stack:
            names = self._family.of_expert(number)
            if kind == "fc1":
                yield from _halves(layer, names[:2], one, self._ranks.of_expert)
            else:
                yield _columns(layer + names[2], one, self._ranks.of_expert)


def _halves(layer: str, names: Sequence[str], value: Any, split: Split) -> Iterator[Part]:
    """Rows of gate, then of up, of this rank."""
    for name, half in zip(names, value.chunk(2), strict=True):
        yield from _rows(layer + name, half, split)


def _rows(name: str, value: Any, split: Split) -> Iterator[Part]:
    rows, *others = value.shape
    yield name, value, ((rows * split.ranks, *others), (rows * split.rank, *(0 for _ in others)))


def _columns(name: str, value: Any, split: Split) -> Part:
    rows, columns = value.shape
    return name, value, ((rows, columns * split.ranks), (0, columns * split.rank))
