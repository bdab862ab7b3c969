"""Strided pieces of tensors, as loaders cut them out by views, and the boxes that they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import NamedTuple

from layercast.recording import Box


class Slice(NamedTuple):
    """A strided piece of a tensor. ``offset`` and ``stride`` count elements of its storage."""

    tensor: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class NoBox(Exception):
    """The piece is no box of its tensor, or its elements come in an order that a placement cannot have."""


def contiguous(shape: Iterable[int], tensor: str = "") -> Slice:
    """All of a contiguous tensor."""
    shape = tuple(shape)
    return Slice(tensor, 0, shape, tuple(math.prod(shape[d + 1 :]) for d in range(len(shape))))


def steps(piece: Slice) -> Iterator[int]:
    """The strides by which it moves."""
    return (stride for count, stride in zip(piece.size, piece.stride) if count > 1 and stride > 0)


class Axes:
    """Mixed-radix digits of the places in a storage, of which each axis counts one: ``stride[d + 1]`` divides
    ``stride[d]``. Immutable."""

    def __init__(self, strides: Iterable[int], elements: int) -> None:
        """Raises NoBox if no such axes have these strides."""
        below = sorted({1, *strides})
        for small, large in zip(below, below[1:]):
            if large % small:
                raise NoBox(f"steps of {small} and of {large} elements")
        self.stride = tuple(reversed(below))
        above = (math.ceil(max(elements, 1) / below[-1]) * below[-1], *self.stride)
        self.extent = tuple(outer // stride for outer, stride in zip(above, self.stride))

    def digits(self, offset: int) -> tuple[int, ...]:
        """The place, by axis. That of the outermost has no bound."""
        found = []
        for stride in self.stride:
            found.append(offset // stride)
            offset -= found[-1] * stride
        return tuple(found)

    def aligned(self, piece: Slice, other: Slice) -> Iterator[tuple[Slice, Slice]]:
        """The piece in parts of which each dimension runs along one axis within its bounds, and ``other``, of the same
        size, in the same parts. Raises NoBox if two dimensions run along one axis."""
        begin = self.digits(piece.offset)
        for d, (count, step) in enumerate(zip(piece.size, piece.stride)):
            if step == 0 or count == 1:
                continue
            if step not in self.stride:
                raise NoBox(f"steps of {step} elements, where {self.stride} are those of axes")
            axis = self.stride.index(step)
            extent, room = self.extent[axis], self.extent[axis] - begin[axis]
            if count <= room or axis == 0:
                continue
            if begin[axis] == 0 and count % extent == 0:
                yield from self.aligned(_split(piece, d, extent), _split(other, d, extent))
            else:
                first = room if begin[axis] else count - count % extent
                yield from self.aligned(_cut(piece, d, 0, first), _cut(other, d, 0, first))
                yield from self.aligned(_cut(piece, d, first, count), _cut(other, d, first, count))
            return
        moving = [step for count, step in zip(piece.size, piece.stride) if step and count > 1]
        if len(set(moving)) < len(moving):
            raise NoBox(f"an element of it is there twice: sizes {piece.size}, strides {piece.stride}")
        yield piece, other


MOST_PARTS = 8192  # copies that one copy of a loader may become


def boxes_of(
    to: Slice, to_shape: tuple[int, ...], source: Slice, source_shape: tuple[int, ...]
) -> list[tuple[Box, Box, bool]]:
    """The copies ``(source's box, destination's box, transposed)`` that copy ``source`` onto ``to``, of equal sizes.

    Both tensors are contiguous. What is no copy of one box is taken apart, along as few elements as do: of a source
    that is spread over several, one copy is made for each. Raises NoBox.
    """
    copies: list[tuple[Box, Box, bool]] = []
    if 0 in to.size:
        return copies
    for to_part, source_part in _aligned(*moving(to, source), to_shape):
        for part, other in _aligned(source_part, to_part, source_shape):
            copies += _copies(*moving(other, part), to_shape, source_shape)
            if len(copies) > MOST_PARTS:
                raise NoBox(f"more than {MOST_PARTS} boxes")
    return copies


def _aligned(piece: Slice, other: Slice, shape: tuple[int, ...]) -> Iterator[tuple[Slice, Slice]]:
    return _axes(piece, shape).aligned(piece, other)


def _axes(piece: Slice, shape: tuple[int, ...]) -> Axes:
    return Axes((*steps(contiguous(shape)), *steps(piece)), math.prod(shape))


def _copies(
    to: Slice, source: Slice, to_shape: tuple[int, ...], source_shape: tuple[int, ...]
) -> list[tuple[Box, Box, bool]]:
    """As few copies as do, and first of all such as can come in parts: of which both boxes have the same long axes."""
    works: list[set[int]] = []
    why = NoBox(f"more than {MOST_PARTS} boxes")
    for apart in _ways_apart(to, source):
        try:
            first = _copy(next(_taken_apart(to, apart)), next(_taken_apart(source, apart)), to_shape, source_shape)
        except NoBox as error:
            why = error
            continue
        works.append(apart)
        if _keeps_axes(*first):
            works = [apart]
            break
    if not works:
        raise why
    parts = zip(_taken_apart(to, works[0]), _taken_apart(source, works[0]))
    return [_copy(*part, to_shape, source_shape) for part in parts]


def _ways_apart(to: Slice, source: Slice) -> list[set[int]]:
    """Sets of dimensions, by how many copies it makes to take them apart; all hold those where the source is spread."""
    spread = {d for d, step in enumerate(source.stride) if step == 0}
    rest = [d for d in range(len(to.size)) if d not in spread]
    ways = [spread.union(more) for count in range(len(rest) + 1) for more in combinations(rest, count)]
    counts = [math.prod(to.size[d] for d in way) for way in ways]
    return [way for count, way in sorted(zip(counts, ways), key=lambda one: one[0]) if count <= MOST_PARTS]


def _keeps_axes(source_box: Box, box: Box, transposed: bool) -> bool:
    source, to = list(source_box.extent), list(box.extent)
    if transposed:
        to[-2:] = reversed(to[-2:])
    return [count for count in source if count != 1] == [count for count in to if count != 1]


def _copy(
    to: Slice, source: Slice, to_shape: tuple[int, ...], source_shape: tuple[int, ...]
) -> tuple[Box, Box, bool]:
    order = sorted(range(len(to.size)), key=lambda d: -to.stride[d])
    to, source = _merged(_permuted(to, order), _permuted(source, order))
    transposed = not _descends(source)
    if transposed:
        swapped = [*range(len(to.size) - 2), len(to.size) - 1, len(to.size) - 2]
        source = _permuted(source, swapped)
        if not _descends(source):
            raise NoBox(f"its elements come in another order: strides {source.stride} into {to.stride}")
    box, source_box = _box(to, to_shape), _box(source, source_shape)
    if transposed and (box.extent[-2:] != to.size[-2:] or source_box.extent[-2:] != source.size[-2:]):
        raise NoBox(f"a transposed piece of {list(source_shape)} that is no matrix")
    return source_box, box, transposed


def _box(piece: Slice, shape: tuple[int, ...]) -> Box:
    """The box of a contiguous tensor that a piece is, whose strides descend."""
    axes = _axes(piece, shape)
    parts = list(axes.aligned(piece, piece))
    if len(parts) != 1:
        raise NoBox(f"it begins and ends within rows of {list(shape)}")
    (part, _), digits = parts[0], axes.digits(piece.offset)
    counts = dict(zip(part.stride, part.size))
    ranges = [
        _range(axes, digits, counts, step, step * count) if count > 1 else (0, 1)
        for count, step in zip(shape, contiguous(shape).stride)
    ]
    return Box(tuple(begin for begin, _ in ranges), tuple(extent for _, extent in ranges))


def _range(axes: Axes, digits: tuple[int, ...], counts: dict[int, int], step: int, end: int) -> tuple[int, int]:
    """Where the piece begins, and how far it goes, along an axis of a tensor that is one or several of ``axes``."""
    begin, extent = 0, 1
    for stride, have, digit in zip(axes.stride, axes.extent, digits):
        if not step <= stride < end:
            continue
        count = counts.get(stride, 1)
        if extent > 1 and count != have:
            raise NoBox(f"{count} of each {have} elements along an axis")
        begin += digit * stride // step
        extent *= count
    return begin, extent


def moving(to: Slice, source: Slice) -> tuple[Slice, Slice]:
    """Without dimensions of one element."""
    long = [d for d, count in enumerate(to.size) if count != 1]
    return _permuted(to, long), _permuted(source, long)


def _merged(to: Slice, source: Slice) -> tuple[Slice, Slice]:
    """Without dimensions of one element, and with one for two that are one on both sides."""
    to, source = moving(to, source)
    d = 0
    while d + 1 < len(to.size):
        if all(piece.stride[d] == piece.stride[d + 1] * piece.size[d + 1] for piece in (to, source)):
            to, source = _joined(to, d), _joined(source, d)
        else:
            d += 1
    return to, source


def _joined(piece: Slice, d: int) -> Slice:
    size = (*piece.size[:d], piece.size[d] * piece.size[d + 1], *piece.size[d + 2 :])
    return piece._replace(size=size, stride=piece.stride[:d] + piece.stride[d + 1 :])


def _split(piece: Slice, d: int, extent: int) -> Slice:
    """With two dimensions in the place of one, of which the inner one has ``extent`` elements."""
    size = (*piece.size[:d], piece.size[d] // extent, extent, *piece.size[d + 1 :])
    return piece._replace(size=size, stride=(*piece.stride[:d], piece.stride[d] * extent, *piece.stride[d:]))


def _cut(piece: Slice, d: int, begin: int, end: int) -> Slice:
    size = (*piece.size[:d], end - begin, *piece.size[d + 1 :])
    return piece._replace(offset=piece.offset + begin * piece.stride[d], size=size)


def _taken_apart(piece: Slice, apart: set[int]) -> Iterator[Slice]:
    """The pieces of one element along these dimensions."""
    order = sorted(apart)
    rest = _permuted(piece, [d for d in range(len(piece.size)) if d not in apart])
    for at in product(*(range(piece.size[d]) for d in order)):
        yield rest._replace(offset=piece.offset + sum(i * piece.stride[d] for i, d in zip(at, order)))


def _permuted(piece: Slice, order: list[int]) -> Slice:
    return piece._replace(size=tuple(piece.size[d] for d in order), stride=tuple(piece.stride[d] for d in order))


def _descends(piece: Slice) -> bool:
    return all(a >= b for a, b in zip(piece.stride, piece.stride[1:]))
