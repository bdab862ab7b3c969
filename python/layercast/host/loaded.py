"""What a loader did, as a recording, and why parts of it are none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from layercast.dtypes import safetensors_name
from layercast.errors import Unsupported
from layercast.host.casts import in_full
from layercast.host.memory import NOTHING, Computed, Content, Copied, Filled, Memory, sources_of
from layercast.host.slices import NoBox, Slice, boxes_of, contiguous
from layercast.recording import Box, Copy, Recording
from layercast.tensor import TensorSpec


@dataclass(frozen=True)
class Loaded:
    """What a loader did. Value.

    Args:
        recording: what can be replayed by copies.
        computed: by target, of which sources the loader makes it where copies do not, and why.
        refused: by target, why it cannot even be told of which sources.
        unwritten: the parameters, but not buffers, that it left alone. A tied one may be among them.
    """

    recording: Recording
    computed: dict[str, Computed]
    refused: dict[str, str]
    unwritten: tuple[str, ...] = ()

    def fed(self) -> tuple[TensorSpec, ...]:
        """The sources of all that is computed, in the order in which they came."""
        names = {source for computed in self.computed.values() for source in computed.sources or ()}
        return tuple(spec for spec in self.recording.sources if spec.name in names)


class Memories(Protocol):
    """What tensors hold after a load."""

    def memory(self, tensor: torch.Tensor) -> Memory | None: ...

    def read(self, tensor: torch.Tensor, to: Slice) -> list[tuple[Slice, Content]]: ...


class Result:
    """Makes copies of what the targets hold after a load. One thread only."""

    def __init__(self, memories: Memories, targets: dict[str, torch.Tensor], sources: tuple[TensorSpec, ...]) -> None:
        self._memories = memories
        self._targets = _once(targets)
        self._sources = sources
        self._shapes = {spec.name: spec.shape for spec in sources}
        self._copies: dict[str, list[Copy]] = {}
        self._zeros: dict[str, list[Box]] = {}
        self._fed: dict[str, frozenset[str] | None] = {}
        self._computed: dict[str, Computed] = {}
        self._refused: dict[str, str] = {}

    def loaded(self) -> Loaded:
        unwritten = [name for name, target in self._targets.items() if not self._take(name, target)]
        self._leave_sources_of_several_layers()
        for name in self._zeros.keys() - self._copies.keys():
            self._own_zeros(name)
        names = [name for name in self._targets if name in self._copies and not self._is_left(name)]
        recording = Recording(
            self._sources,
            tuple(self._spec(name) for name in names),
            tuple(copy for name in names for copy in self._copies[name]),
            {name: tuple(self._zeros[name]) for name in names if name in self._zeros},
        )
        parameters = (name for name in unwritten if isinstance(self._targets[name], torch.nn.Parameter))
        return Loaded(recording, self._computed, self._refused, tuple(parameters))

    def _take(self, name: str, target: torch.Tensor) -> bool:
        """Notes what fills a target; whether anything does."""
        shape = tuple(target.shape)
        contents = self._memories.read(target, contiguous(shape))
        if target.numel() == 0 or all(content == NOTHING for _, content in contents):
            return bool(target.numel() == 0)
        self._fed[name] = sources_of(content for _, content in contents)
        try:
            spec = self._spec(name)
            untold_first = sorted(contents, key=lambda part: sources_of([part[1]]) is not None)  # they decide
            for to, content in untold_first:
                self._place(spec, to, in_full(content, target.dtype))
        except (NoBox, Unsupported) as why:
            self._leave(name, str(why))
        return True

    def _leave(self, name: str, why: str) -> None:
        """Leaves a target to the loader, which needs its sources whole."""
        fed = self._fed[name]
        many = [source for source in fed or () if len(self._shapes[source]) > _MOST_AXES]
        if fed and not many:
            self._computed.setdefault(name, Computed(why, fed))
        else:
            self._refused.setdefault(name, why)

    def _is_left(self, name: str) -> bool:
        return name in self._computed or name in self._refused

    def _place(self, spec: TensorSpec, to: Slice, content: Content) -> None:
        if isinstance(content, Copied):
            self._copies.setdefault(spec.name, []).extend(self._copied(spec, to, content.source))
        elif isinstance(content, Filled):
            self._zeros.setdefault(spec.name, []).extend(self._zeroed(spec, to, content))
        elif content == NOTHING:
            raise NoBox(f"no source fills {math.prod(to.size)} of its {math.prod(spec.shape)} elements")
        else:
            raise NoBox(content.why)

    def _zeroed(self, spec: TensorSpec, to: Slice, content: Filled) -> list[Box]:
        """Of a source that the loader replaced by zeros, nothing is copied; but it belongs to the parameter."""
        if content.value != 0:
            raise NoBox(f"filled with {content.value}")
        if content.instead_of:
            self._copies.setdefault(spec.name, []).append(self._nothing(content.instead_of, spec))
        return [box for _, box, _ in boxes_of(to, spec.shape, to, spec.shape)]

    def _copied(self, spec: TensorSpec, to: Slice, source: Slice) -> list[Copy]:
        shape = self._shapes[source.tensor]
        try:
            _refuse_axes(shape)
            boxes = boxes_of(to, spec.shape, source, shape)
        except NoBox as why:
            raise NoBox(f"'{source.tensor}': {why}") from why
        return [Copy(source.tensor, spec.name, of, box, transposed) for of, box, transposed in boxes]

    def _own_zeros(self, name: str) -> None:
        """A parameter that is zeros alone needs a tensor of which it takes nothing, for a receiver to wait for."""
        memory = self._memories.memory(self._targets[name])
        if memory is None or not memory.empty:
            self._leave(name, ZEROS_ALONE)
        else:
            self._copies[name] = [self._nothing(memory.empty[0], self._spec(name))]

    def _nothing(self, source: str, spec: TensorSpec) -> Copy:
        return Copy(source, spec.name, _nothing_of(self._shapes[source]), _nothing_of(spec.shape))

    def _spec(self, name: str) -> TensorSpec:
        target = self._targets[name]
        shape = tuple(target.shape)
        _refuse_axes(shape)
        return TensorSpec(name, safetensors_name(target.dtype), shape)

    def _leave_sources_of_several_layers(self) -> None:
        """A receiver stages layer by layer: a tensor belongs to one."""
        first: dict[str, str] = {}
        for name in [name for name in self._copies if not self._is_left(name)]:
            for copy in self._copies[name]:
                other = first.setdefault(copy.source, name)
                if other.rpartition(".")[0] != name.rpartition(".")[0]:
                    self._leave(name, f"'{copy.source}' goes into '{other}' too, of another layer")


ZEROS_ALONE = "filled with zeros that come of no source"


def _nothing_of(shape: tuple[int, ...]) -> Box:
    return Box((0,) * len(shape), (0,) * len(shape))


_MOST_AXES = 5  # of a box (include/layercast/box.h)


def _refuse_axes(shape: tuple[int, ...]) -> None:
    if len(shape) > _MOST_AXES:
        raise NoBox(f"expected at most {_MOST_AXES} axes, got {list(shape)}")


def _once(targets: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without further names of the same tensor."""
    names: dict[Any, str] = {}
    for name, target in targets.items():
        place = target.untyped_storage()._cdata, target.storage_offset(), target.shape, target.stride()
        names.setdefault(place if target.numel() else name, name)
    return {name: targets[name] for name in names.values()}
