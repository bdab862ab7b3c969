"""What a publisher is given, as what the extension takes. Used by layercast.Publisher when torch is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from layercast.trainer.adapters import How
from layercast.trainer.config import config
from layercast.trainer.lora import looked_at_adapter
from layercast.trainer.module import (
    Looked,
    gathered,
    looked_at,
    looked_at_tensors,
    of_this_rank,
    pieces_of_module,
    pieces_of_state_dict,
)
from layercast.trainer.pieces import Pieces
from layercast.trainer.sharding import is_dtensor


@dataclass(frozen=True, slots=True)
class Source:
    """What this rank publishes. ``part`` is (rank, ranks), None for a rank that has nothing to publish; ``gathers``:
    iterating is a collective."""

    pieces: Pieces
    part: tuple[int, int] | None
    config: str
    gathers: bool

    def specs(self) -> list[tuple[str, str, tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]] | None]]:
        """(name, torch's dtype, shape, part) of what ``pieces`` will give."""
        return [
            (spec.name, str(spec.dtype), spec.shape, None if spec.whole is None else (spec.whole, spec.offsets or ()))
            for spec in self.pieces.specs()
        ]


def source_of(
    weights: Any, *, dtype: torch.dtype | None, adapters: How, gather: bool, alone: bool = False
) -> Source | None:
    """None: neither a module nor tensors of torch. ``alone``: this rank publishes all that it holds whole."""
    if isinstance(weights, torch.nn.Module):
        if gather:
            return _source(gathered(weights, dtype=dtype, adapters=adapters), config(weights), True)
        ranks = _this_rank() if alone and not any(map(is_dtensor, weights.parameters())) else None
        return _source(pieces_of_module(weights, dtype=dtype, adapters=adapters, ranks=ranks), config(weights), False)
    pairs = _pairs_of_torch(weights)
    if pairs is None:
        return None  # parts are said, not found out
    ranks = _this_rank() if alone and not any(is_dtensor(tensor) for _, tensor in pairs) else None
    return _source(pieces_of_state_dict(pairs, dtype=dtype, ranks=ranks), "", False)


def sources_of_adapters(
    adapters: Iterable[Any], base: Any, *, dtype: torch.dtype | None, alone: bool = False
) -> tuple[list[tuple[str, Source] | None], Source | None]:
    """Of adapters, and maybe their base, that are one version: the text of each adapter_config.json and what this rank
    publishes of the factors, and the same of the base. Their sources have one ``part``. None: nothing of torch.

    An adapter is a PEFT model, ``(model, name)``, or ``(configuration, factors)``.
    """
    looked: list[Looked] = []
    texts: list[str | None] = []
    for adapter in adapters:
        found = _adapter(adapter, dtype)
        texts.append(None if found is None else found[0])
        looked += [] if found is None else [found[1]]
    of_base = _base(base, dtype)
    looked += [] if of_base is None else [of_base]
    held = [one.tensor for of in looked for one in of.held]
    ranks = _this_rank() if alone and not any(map(is_dtensor, held)) else None
    pieces = iter(of_this_rank(looked, ranks))
    sources = [None if text is None else (text, _source(next(pieces), "", False)) for text in texts]
    text = config(base) if isinstance(base, torch.nn.Module) else ""
    return sources, None if of_base is None else _source(next(pieces), text, False)


def _adapter(adapter: Any, dtype: torch.dtype | None) -> tuple[str, Looked] | None:
    if isinstance(adapter, torch.nn.Module):
        return looked_at_adapter(adapter, None, dtype)
    if not isinstance(adapter, (tuple, list)) or len(adapter) != 2:
        return None
    first, second = adapter
    if isinstance(first, torch.nn.Module):
        return looked_at_adapter(first, second, dtype)
    pairs = _pairs_of_torch(second)
    return None if pairs is None else (first, looked_at_tensors(pairs, dtype))


def _base(base: Any, dtype: torch.dtype | None) -> Looked | None:
    if isinstance(base, torch.nn.Module):
        return looked_at(base, dtype, "base")
    pairs = _pairs_of_torch(base)
    return None if pairs is None else looked_at_tensors(pairs, dtype)


def _pairs_of_torch(weights: Any) -> list[tuple[str, torch.Tensor]] | None:
    """Of a state dict, or a list of its items; None: it is neither."""
    if isinstance(weights, Mapping):
        weights = list(weights.items())
    if not isinstance(weights, (list, tuple)) or not weights:
        return None
    return list(weights) if all(_is_pair_of_torch(item) for item in weights) else None


def _this_rank() -> list[int] | None:
    distributed = torch.distributed
    return [distributed.get_rank()] if distributed.is_available() and distributed.is_initialized() else None


def _is_pair_of_torch(item: Any) -> bool:
    return (
        isinstance(item, (list, tuple))
        and len(item) == 2
        and isinstance(item[0], str)
        and isinstance(item[1], torch.Tensor)
    )


def _source(pieces: Pieces, text: str, gathers: bool) -> Source:
    part = pieces.part
    if gathers:
        part = (0, 1) if len(pieces) else None  # rank 0 publishes
    return Source(pieces, part, text, gathers)


def endpoints_of_all(published: Any, group: Any = None) -> list[str]:
    """The endpoints of all ranks that published something of one version, on every rank: what engines are given.

    A collective of torch.distributed; ``published`` is what this rank's ``publish`` returned.
    """
    mine = None if published is None else published.endpoint
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [mine] if mine else []
    everybody: list[str | None] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(everybody, mine, group=group)
    return [endpoint for endpoint in everybody if endpoint is not None]
