"""What was written where in a tensor's memory while a loader ran, and so what a piece of it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from layercast.host.slices import Axes, Slice, contiguous, moving, steps


class Copied(NamedTuple):
    """Elements of a source. ``rounded``: the dtype, if there is one, whose precision they lost on the way."""

    source: Slice
    rounded: Any = None


class Filled(NamedTuple):
    """A number. ``instead_of``: the source, if there is one, whose elements the loader replaced by it."""

    value: float
    instead_of: str = ""


class Computed(NamedTuple):
    """What copies do not make, and why. ``sources``: all that it was computed of; None: of something else too."""

    why: str
    sources: frozenset[str] | None = None


Content = Copied | Filled | Computed  # what elements hold

NOTHING = Computed("no source")  # what fills a target that the loader left alone


def sources_of(contents: Iterable[Content]) -> frozenset[str] | None:
    """All sources that fed these; None if something else did too."""
    found: set[str] = set()
    for content in contents:
        if isinstance(content, Copied):
            found.add(content.source.tensor)
        elif isinstance(content, Filled):
            found.update(filter(None, [content.instead_of]))
        elif content.sources is None:
            return None
        else:
            found |= content.sources
    return frozenset(found)


class Memory:
    """The storage of one tensor: what was written into it, in order. One thread only."""

    def __init__(self, name: str, elements: int, before: Content | None = None) -> None:
        """``before``: what it holds where nothing was written; None: itself, as a source does."""
        self.name = name
        self.elements = elements
        self._before = before
        self._writes: list[tuple[Slice, Content]] = []
        self.empty: list[str] = []  # sources of which no element was copied into it: those of another rank's part

    @property
    def written(self) -> bool:
        return bool(self._writes)

    @property
    def is_target(self) -> bool:
        return self._before is NOTHING

    def sources(self) -> frozenset[str] | None:
        """All that fed any of it: for pieces of which it is not to be told what they hold."""
        fed: list[Content] = []
        for where, content in reversed(self._writes):
            fed.append(content)
            if math.prod(where.size) == self.elements and 0 not in where.stride:
                return sources_of(fed)
        return sources_of([*fed, self._unwritten(contiguous((self.elements,), self.name))])

    def write(self, where: Slice, content: Content) -> None:
        if isinstance(content, Filled) and self._before is None:
            content = content._replace(instead_of=self.name)
        if 0 not in where.size:
            self._writes.append((where, content))
        elif isinstance(content, Copied):
            self.empty.append(content.source.tensor)

    def read(self, piece: Slice, to: Slice) -> list[tuple[Slice, Content]]:
        """What a piece of it holds, as parts of ``to``, of the same size, in the order in which they were written.

        The latest write counts. Raises NoBox if it is not to be told which writes the piece meets.
        """
        if not self._writes or 0 in piece.size:
            return [(to, self._unwritten(piece))]
        strides = (step for where, _ in self._writes for step in steps(where))
        axes = Axes((*steps(piece), *strides), self.elements)
        rest = [_Region.of(axes, *pair) for pair in axes.aligned(*moving(piece, to))]
        found: list[tuple[Slice, Content]] = []
        for where, content in reversed(self._writes):
            for written in _regions(axes, where, content):
                rest = [part for region in rest for part in self._met(region, written, content, found)]
            if not rest:
                break
        found += [(region.other(), self._unwritten(region.own(axes, self.name))) for region in rest]
        return found[::-1]

    def _unwritten(self, piece: Slice) -> Content:
        return Copied(piece) if self._before is None else self._before

    @staticmethod
    def _met(
        region: _Region, written: _Region, content: Content, found: list[tuple[Slice, Content]]
    ) -> list[_Region]:
        """Notes what ``region`` takes of a write, and returns the rest of it."""
        common = region.within(written)
        if common is None:
            return [region]
        if isinstance(content, Copied):
            content = content._replace(source=written.other_at(common))
        found.append((common.other(), content))
        return list(region.without(common))


class _Region(NamedTuple):
    """A box in a memory's axes, and where its elements lie in another tensor: at ``base`` plus digits times strides."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    tensor: str
    base: int
    stride: tuple[int, ...]
    spread: tuple[tuple[int, int], ...] = ()  # counts and strides along which the memory's place stays the same

    @staticmethod
    def of(axes: Axes, piece: Slice, other: Slice) -> _Region:
        begin = axes.digits(piece.offset)
        dims = {step: d for d, step in enumerate(piece.stride) if step}
        count = [piece.size[dims[step]] if step in dims else 1 for step in axes.stride]
        stride = tuple(other.stride[dims[step]] if step in dims else 0 for step in axes.stride)
        return _Region(
            begin,
            tuple(at + extent for at, extent in zip(begin, count)),
            other.tensor,
            other.offset - _dot(begin, stride),
            stride,
            tuple((piece.size[d], other.stride[d]) for d, step in enumerate(piece.stride) if step == 0),
        )

    def within(self, limit: _Region) -> _Region | None:
        begin = tuple(map(max, self.begin, limit.begin))
        end = tuple(map(min, self.end, limit.end))
        empty = any(first >= last for first, last in zip(begin, end))
        return None if empty else self._replace(begin=begin, end=end)

    def without(self, part: _Region) -> Iterator[_Region]:
        """What is left without a part of it, in boxes."""
        begin, end = list(self.begin), list(self.end)
        for axis in range(len(begin)):
            if begin[axis] < part.begin[axis]:
                yield self._replace(begin=tuple(begin), end=(*end[:axis], part.begin[axis], *end[axis + 1 :]))
            if part.end[axis] < end[axis]:
                yield self._replace(begin=(*begin[:axis], part.end[axis], *begin[axis + 1 :]), end=tuple(end))
            begin[axis], end[axis] = part.begin[axis], part.end[axis]

    def other(self) -> Slice:
        return self.other_at(self)

    def other_at(self, part: _Region) -> Slice:
        """The other tensor's elements for a part of the region. Where the part is spread, they stay the same."""
        counts = [last - first for first, last in zip(part.begin, part.end)]
        counts += [count for count, _ in part.spread]
        steps = [step if part is self else 0 for _, step in part.spread]
        return Slice(self.tensor, self.base + _dot(part.begin, self.stride), tuple(counts), (*self.stride, *steps))

    def own(self, axes: Axes, tensor: str) -> Slice:
        """The memory's own elements."""
        return _Region(self.begin, self.end, tensor, 0, axes.stride).other_at(self)


def _regions(axes: Axes, where: Slice, content: Content) -> Iterator[_Region]:
    source = content.source if isinstance(content, Copied) else where
    for part, other in axes.aligned(*moving(where, source)):
        yield _Region.of(axes, part, other)


def _dot(digits: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return sum(digit * stride for digit, stride in zip(digits, strides))
