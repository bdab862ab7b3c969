"""Where a DTensor's shards lie in the whole, on this rank and on all others. Nothing here communicates, but for `full`.

The one module that uses what torch.distributed keeps private: `Placement._split_tensor`, `_StridedShard`, and a mesh's
`_layout` and `_rank_map`. Tested with torch 2.11; another version that lacks one of them is refused by name.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from layercast.errors import FailedPrecondition, Unsupported
from layercast.trainer.wrappers import loaded_class

TESTED_WITH = "2.11"


class Box(NamedTuple):
    """A box of a whole tensor, which this rank holds."""

    offsets: tuple[int, ...]  # in the whole tensor
    shape: tuple[int, ...]
    local: tuple[slice, ...]  # where it lies in the local tensor


class Run(NamedTuple):
    """Consecutive indices along one dimension."""

    start: int  # in the whole tensor
    length: int
    local: int  # where the run begins in the local tensor


Copy = tuple[tuple[int, int], ...]  # (rank, elements) of the ranks that together hold each element once


@dataclass(frozen=True, slots=True)
class Copies:
    """All copies of one tensor that a trainer's ranks hold. Value; the same on all ranks, but for `mine`."""

    copies: tuple[Copy, ...]
    mine: int  # the copy that this rank holds a part of


class _Split(NamedTuple):
    """How one mesh dimension cuts one tensor dimension."""

    factor: int | None  # of a _StridedShard; None: Shard
    chunks: int
    chunk: int  # which of them


def dtensor_class() -> type[Any] | None:
    """Does not import torch.distributed.tensor: nobody has a DTensor without it."""
    return loaded_class("torch.distributed.tensor", "DTensor")


def is_dtensor(tensor: object) -> bool:
    found = dtensor_class()
    return found is not None and isinstance(tensor, found)


def local_tensor(tensor: Any) -> Tensor:
    local: Tensor = tensor._local_tensor  # to_local() is an autograd function, and copies if it thinks it must wait
    return local


def boxes(name: str, tensor: Any) -> tuple[Box, ...]:
    """The boxes of a DTensor that this rank holds, in the order of its local memory; none if the rank has no element.
    Several, if runs of a strided shard are interleaved with those of other ranks."""
    mesh, local, shape = tensor.device_mesh, local_tensor(tensor), tuple(tensor.shape)
    _check_placements(name, tensor)
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return ()
    splits = _splits(tuple(tensor.placements), tuple(mesh.shape), tuple(coordinate), len(shape))
    held = _local_shape(shape, splits)
    if held != tuple(local.shape):
        raise FailedPrecondition(
            f"tensor '{name}': placements {tensor.placements} of {list(shape)} on mesh {list(mesh.shape)} give this "
            f"rank {list(held)}, but its local tensor is {list(local.shape)}"
        )
    return _boxes(shape, splits)


class Holders:
    """Says who holds a DTensor, of the ranks that publish together. Value, for one look at a module: it remembers."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self._ranks = ranks
        self._known: dict[tuple[Any, ...], Copies] = {}

    def copies(self, name: str, tensor: Any) -> Copies:
        """Raises, naming the tensor, if its mesh does not say it of all of the ranks."""
        _check_placements(name, tensor)
        mesh = tensor.device_mesh
        key = (tuple(tensor.shape), tuple(tensor.placements), mesh)
        found = self._known.get(key)
        if found is None:
            rows = _parallel_meshes(mesh, self._ranks)
            if {rank for row in rows for rank in row.flatten().tolist()} != set(self._ranks):
                raise FailedPrecondition(
                    f"tensor '{name}': expected a mesh that says which of ranks {list(self._ranks)} hold it, got one "
                    f"of ranks {mesh.mesh.flatten().tolist()} alone: slice all meshes from one that has all ranks, or "
                    "pass as `ranks` those that hold this module"
                )
            found = self._known[key] = _copies(*key, rows)
        return found


def full(tensor: Any) -> Tensor:
    """The whole DTensor, on all ranks: a collective. A shard that was offloaded to the CPU is gathered where its mesh
    is."""
    mesh, local = tensor.device_mesh, local_tensor(tensor)
    if local.device.type != mesh.device_type:
        from torch.distributed.tensor import DTensor

        tensor = DTensor.from_local(
            local.to(mesh.device_type),
            mesh,
            tensor.placements,
            run_check=False,
            shape=tensor.shape,
            stride=tensor.stride(),
        )
    whole: Tensor = tensor.detach().full_tensor()
    return whole


def _copies(shape: tuple[int, ...], placements: tuple[Any, ...], mesh: Any, rows: list[Tensor]) -> Copies:
    sizes = tuple(mesh.shape)
    replicated = [d for d, placement in enumerate(placements) if placement.is_replicate()]
    found: list[Copy] = []
    mine = -1
    for row in rows:
        for chosen in itertools.product(*(range(sizes[d]) for d in replicated)):
            axes = [range(size) for size in sizes]
            for d, coordinate in zip(replicated, chosen, strict=True):
                axes[d] = range(coordinate, coordinate + 1)
            at = list(itertools.product(*axes))
            ranks = [int(row[coordinates]) for coordinates in at]
            if mesh.get_rank() in ranks:
                mine = len(found)
            parts = [math.prod(_local_shape(shape, _splits(placements, sizes, c, len(shape)))) for c in at]
            found.append(tuple((rank, part) for rank, part in zip(ranks, parts, strict=True) if part))
    return Copies(tuple(found), mine)


def _parallel_meshes(mesh: Any, ranks: tuple[int, ...]) -> list[Tensor]:
    """The meshes like this one, itself included, that lie among the ranks and come of slicing one larger mesh. A rank
    that holds a DTensor on mesh["tp"] knows by them who holds the other replicas."""
    try:
        every = mesh._layout.remap_to_tensor(mesh._rank_map)
    except AttributeError as error:
        raise _unknown_torch(str(error)) from None
    among = set(ranks)
    return [row for row in every.reshape(-1, *mesh.shape) if among.issuperset(row.flatten().tolist())]


def _check_placements(name: str, tensor: Any) -> None:
    for placement in tensor.placements:
        if not (placement.is_replicate() or hasattr(placement, "dim")):
            raise Unsupported(
                f"tensor '{name}': expected placements Shard and Replicate, got {tensor.placements}: "
                "redistribute it first"
            )


def _splits(
    placements: tuple[Any, ...], mesh_shape: tuple[int, ...], coordinates: tuple[int, ...], dimensions: int
) -> tuple[tuple[_Split, ...], ...]:
    """For each dimension of the tensor, how it is cut, in the order in which torch does it."""
    cuts: list[tuple[_Split, ...]] = [()] * dimensions
    for placement, chunks, chunk in zip(placements, mesh_shape, coordinates, strict=True):
        if hasattr(placement, "dim"):
            cuts[placement.dim] += (_Split(getattr(placement, "split_factor", None), chunks, chunk),)
    return tuple(cuts)


def _local_shape(shape: tuple[int, ...], splits: tuple[tuple[_Split, ...], ...]) -> tuple[int, ...]:
    return tuple(sum(run.length for run in _runs(size, cuts)) for size, cuts in zip(shape, splits, strict=True))


@functools.lru_cache(maxsize=4096)
def _boxes(shape: tuple[int, ...], splits: tuple[tuple[_Split, ...], ...]) -> tuple[Box, ...]:
    axes = [_runs(size, cuts) for size, cuts in zip(shape, splits, strict=True)]
    return tuple(
        Box(
            tuple(run.start for run in runs),
            tuple(run.length for run in runs),
            tuple(slice(run.local, run.local + run.length) for run in runs),
        )
        for runs in itertools.product(*axes)
    )


@functools.lru_cache(maxsize=65536)
def _runs(size: int, splits: tuple[_Split, ...]) -> tuple[Run, ...]:
    """Which indices of a dimension are left after all cuts. The indices themselves are cut, by what torch cuts data
    with: so no placement is understood here in another way than there."""
    if not splits:
        return (Run(0, size, 0),) if size else ()
    indices = torch.arange(size, device="cpu")
    for split in splits:
        placement = _placement(split.factor)
        chunks, _ = placement._split_tensor(indices, split.chunks, with_padding=False, contiguous=False)
        indices = chunks[split.chunk]
    return tuple(_consecutive(indices))


def _consecutive(indices: Tensor) -> Iterator[Run]:
    if not indices.numel():
        return
    ends = [*((indices[1:] != indices[:-1] + 1).nonzero().flatten() + 1).tolist(), indices.numel()]
    begin = 0
    for end in ends:
        yield Run(int(indices[begin]), end - begin, begin)
        begin = end


def _placement(factor: int | None) -> Any:
    from torch.distributed.tensor import placement_types

    if factor is None:
        return placement_types.Shard(0)
    try:
        return placement_types._StridedShard(0, split_factor=factor)
    except AttributeError as error:
        raise _unknown_torch(str(error)) from None


def _unknown_torch(what: str) -> Unsupported:
    return Unsupported(
        f"torch {torch.__version__} keeps shards in another way than torch {TESTED_WITH}, with which this was tested: "
        f"{what}"
    )
