"""Strided pieces of tensors, as loaders cut them out by views, and the boxes that they are."""

from __future__ import annotations

import math
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


def boxes_of(to: Slice, to_shape: tuple[int, ...], source: Slice, source_shape: tuple[int, ...]) -> list[tuple[Box, Box, bool]]:
    """The copies ``(source's box, destination's box, transposed)`` that copy ``source`` onto ``to``, of equal sizes.

    Both tensors are contiguous. An element that is spread over several is copied once for each. Raises NoBox.
    """
    copies = []
    for to_part, source_part in _without_spread(to, source):
        order = sorted(range(len(to_part.size)), key=lambda d: -to_part.stride[d])
        to_part, source_part = _permuted(to_part, order), _permuted(source_part, order)
        transposed = not _descends(source_part)
        if transposed:
            swapped = [*range(len(order) - 2), len(order) - 1, len(order) - 2]
            source_part = _permuted(source_part, swapped)
            if len(order) < 2 or not _descends(source_part):
                raise NoBox(f"its elements come in another order: strides {source.stride} into {to.stride}")
        box, source_box = _box(to_part, to_shape), _box(source_part, source_shape)
        if transposed and (_matrix(box) != to_part.size[-2:] or _matrix(source_box) != source_part.size[-2:]):
            raise NoBox(f"a transposed piece of {source_shape} that is no matrix")
        copies.append((source_box, box, transposed))
    return copies


def through(outer: Slice, size: tuple[int, ...], to: Slice, inner: Slice) -> tuple[Slice, Slice]:
    """What a copy from a scratch tensor copies in truth: ``(to, source)``, of equal sizes.

    The scratch tensor, contiguous and of ``size``, was filled by ``outer``, of the same size; ``to`` is filled from its
    slice ``inner``. Raises NoBox.
    """
    order = sorted(range(len(inner.size)), key=lambda d: -inner.stride[d])
    to, inner = _permuted(to, order), _permuted(inner, order)
    begin, pieces = _digits(inner, size)
    offset, sizes, strides, to_sizes, to_strides = outer.offset, [], [], [], []
    for first, stride in zip(begin, outer.stride):
        offset += first * stride
    for (count, step), digits in zip(zip(to.size, to.stride), pieces):
        assert math.prod(extent for _, extent in digits) == count
        rest = count
        for axis, extent in digits:
            rest //= extent
            sizes.append(extent)
            strides.append(outer.stride[axis])
            to_sizes.append(extent)
            to_strides.append(step * rest)
    return (
        Slice(to.tensor, to.offset, tuple(to_sizes), tuple(to_strides)),
        Slice(outer.tensor, offset, tuple(sizes), tuple(strides)),
    )


def _matrix(box: Box) -> tuple[int, ...]:
    return box.extent[-2:]


_MOST_SPREAD = 64


def _without_spread(to: Slice, source: Slice) -> list[tuple[Slice, Slice]]:
    """Drops dimensions of one element, and takes a dimension along which the source does not move apart."""
    for d, (count, step) in enumerate(zip(source.size, source.stride)):
        if count != 1 and step != 0:
            continue
        if count > _MOST_SPREAD:
            raise NoBox(f"one element for each {count}")
        parts = []
        for i in range(count):
            at = _without(to, d)._replace(offset=to.offset + i * to.stride[d])
            parts += _without_spread(at, _without(source, d))
        return parts
    return [(to, source)]


def _without(piece: Slice, d: int) -> Slice:
    return piece._replace(size=piece.size[:d] + piece.size[d + 1 :], stride=piece.stride[:d] + piece.stride[d + 1 :])


def _permuted(piece: Slice, order: list[int]) -> Slice:
    return piece._replace(size=tuple(piece.size[d] for d in order), stride=tuple(piece.stride[d] for d in order))


def _descends(piece: Slice) -> bool:
    return all(a >= b for a, b in zip(piece.stride, piece.stride[1:]))


def _digits(piece: Slice, shape: tuple[int, ...]) -> tuple[list[int], list[list[tuple[int, int]]]]:
    """Where in a contiguous tensor of ``shape`` the piece begins, by axis, and for each of its dimensions, whose strides
    descend, the axes that it runs along, outermost first, each with how far."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    begin, rest = [], piece.offset
    for extent, stride in zip(shape, strides):
        begin.append(rest // stride % extent if extent else 0)
        rest -= begin[-1] * stride
    pieces: list[list[tuple[int, int]]] = []
    free = list(range(len(shape)))
    for count, step in reversed(list(zip(piece.size, piece.stride))):
        digits: list[tuple[int, int]] = []
        while count > 1:
            axis = next((d for d in reversed(free) if strides[d] == step and shape[d] > 1), None)
            if axis is None:
                raise NoBox(f"steps of {step} in a tensor of {list(shape)}")
            free.remove(axis)
            room = shape[axis] - begin[axis]
            if count > room and (begin[axis] or count % shape[axis]):
                raise NoBox(f"{count} elements from {begin[axis]} on along axis {axis} of {list(shape)}")
            extent = min(count, shape[axis])
            digits.insert(0, (axis, extent))
            count //= extent
            step *= extent
        pieces.insert(0, digits)
    return begin, pieces


def _box(piece: Slice, shape: tuple[int, ...]) -> Box:
    begin, pieces = _digits(piece, shape)
    extent = [1] * len(shape)
    axes = [axis for digits in pieces for axis, _ in digits]
    if axes != sorted(axes):
        raise NoBox(f"axes {axes} of {list(shape)}")
    for axis, count in (digit for digits in pieces for digit in digits):
        extent[axis] = count
    return Box(tuple(begin), tuple(extent))
