"""Which rank publishes what, where several hold the same: one copy of each tensor is chosen, so that ranks share the
bytes. Every rank computes the same answer from shapes and meshes alone, so nothing is communicated."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from layercast.trainer.sharding import Copies, Copy


class Shared(NamedTuple):
    """A tensor, or several that one rank needs together, and the copies of it that there are."""

    element_bytes: int
    copies: tuple[Copy, ...]


def one_copy_each(ranks: Sequence[int], mine: int, elements: int) -> Copies:
    """The copies of a plain tensor: each rank holds all of it."""
    return Copies(tuple(((rank, elements),) for rank in ranks), mine)


def choose(tensors: Sequence[Shared]) -> tuple[list[int], dict[int, int]]:
    """For each tensor the index of the copy that is published, and how many bytes that makes for each rank; a rank that
    publishes nothing is not in it.

    Tensors of one copy leave no choice. Then the largest go first, each to the copy whose fullest rank has least (as in
    scheduling by longest processing time): first what several ranks hold in parts, then what fills the gaps, tensors of
    which each rank has all."""
    chosen = [0] * len(tensors)
    load: dict[int, int] = defaultdict(int)
    choices = []
    for index, tensor in enumerate(tensors):
        if len(tensor.copies) > 1:
            choices.append(index)
        else:
            _add(load, tensor, 0)
    choices.sort(key=lambda index: -_bytes(tensors[index]))
    for index in choices:
        if not _is_whole_everywhere(tensors[index]):
            fullest = [max((load[rank] for rank, _ in copy), default=0) for copy in tensors[index].copies]
            chosen[index] = fullest.index(min(fullest))
            _add(load, tensors[index], chosen[index])
    _fill_gaps(tensors, [index for index in choices if _is_whole_everywhere(tensors[index])], chosen, load)
    return chosen, {rank: size for rank, size in sorted(load.items()) if size}


def _fill_gaps(tensors: Sequence[Shared], wholes: list[int], chosen: list[int], load: dict[int, int]) -> None:
    """A heap for each set of ranks, since there may be as many choices as ranks."""
    heaps: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
    for index in wholes:
        ranks = tuple(copy[0][0] for copy in tensors[index].copies)
        heap = heaps.get(ranks)
        if heap is None:
            heap = heaps[ranks] = [(load[rank], at, rank) for at, rank in enumerate(ranks)]
            heapq.heapify(heap)
        while heap[0][0] != load[heap[0][2]]:  # what another set of ranks gave it meanwhile
            _, at, rank = heap[0]
            heapq.heapreplace(heap, (load[rank], at, rank))
        _, at, rank = heap[0]
        chosen[index] = at
        _add(load, tensors[index], at)
        heapq.heapreplace(heap, (load[rank], at, rank))


def _is_whole_everywhere(tensor: Shared) -> bool:
    return all(len(copy) == 1 for copy in tensor.copies)


def _bytes(tensor: Shared) -> int:
    return tensor.element_bytes * sum(elements for _, elements in tensor.copies[0])


def _add(load: dict[int, int], tensor: Shared, copy: int) -> None:
    for rank, elements in tensor.copies[copy]:
        load[rank] += elements * tensor.element_bytes
