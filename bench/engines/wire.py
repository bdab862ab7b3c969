"""The trainer's tensors as others find them: a file of shared memory, and a gloo group of trainer and workers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

_ALIGNMENT = 64


class Placed(NamedTuple):
    """Where a tensor lies in the file."""

    name: str
    dtype: str
    shape: list[int]
    offset: int


def place(tensors: dict[str, torch.Tensor]) -> list[Placed]:
    placed, offset = [], 0
    for name, tensor in tensors.items():
        placed.append(Placed(name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), offset))
        offset += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    return placed


def mapped(path: str | Path, placed: list[Placed]) -> dict[str, torch.Tensor]:
    """The tensors of the file, which is made if it is not there. Writing to them writes to it."""
    size = max(each.offset + _empty(each, "meta").nbytes for each in placed)
    whole = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
    return {
        each.name: whole[each.offset : each.offset + _empty(each, "meta").nbytes]
        .view(getattr(torch, each.dtype))
        .view(each.shape)
        for each in placed
    }


def _empty(placed: Placed, device: str) -> torch.Tensor:
    return torch.empty(placed.shape, dtype=getattr(torch, placed.dtype), device=device)


class Group:
    """A gloo group whose rank 0 broadcasts; the workers come after it. One thread only."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: float) -> None:
        self._group = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=timeout))

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Sends rank 0's bytes into everybody's tensor; returns when this rank's part is done."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        self._group.broadcast([tensor.view(-1).view(torch.uint8)], options).wait()


def joined(port: int, rank: int, size: int, timeout: float) -> Group:
    """The group of the trainer that listens on this port."""
    return Group(dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=timeout)), rank, size, timeout)
