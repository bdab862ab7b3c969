"""What a loader did, as a recording, and why parts of it are none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from layercast.dtypes import safetensors_name
from layercast.errors import Unsupported
from layercast.host.casts import in_full
from layercast.host.memory import Content, Copied, Filled, Memory
from layercast.host.slices import NoBox, Slice, boxes_of, contiguous
from layercast.recording import Box, Copy, Recording
from layercast.tensor import TensorSpec


@dataclass(frozen=True)
class Loaded:
    """What a loader did. Value.

    Args:
        recording: what can be replayed by copies.
        computed: by parameter, why the rest cannot.
        unwritten: the parameters, but not buffers, that it left alone. A tied one may be among them.
    """

    recording: Recording
    computed: dict[str, str]
    unwritten: tuple[str, ...] = ()


NOTHING = "no source"  # what fills a target that the loader left alone


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
        self._computed: dict[str, str] = {}

    def loaded(self) -> Loaded:
        unwritten = [name for name, target in self._targets.items() if not self._take(name, target)]
        self._refuse_sources_of_several_layers()
        for name in self._zeros.keys() - self._copies.keys():
            self._own_zeros(name)
        names = [name for name in self._targets if name in self._copies and name not in self._computed]
        recording = Recording(
            self._sources,
            tuple(self._spec(name) for name in names),
            tuple(copy for name in names for copy in self._copies[name]),
            {name: tuple(self._zeros[name]) for name in names if name in self._zeros},
        )
        parameters = (name for name in unwritten if isinstance(self._targets[name], torch.nn.Parameter))
        return Loaded(recording, self._computed, tuple(parameters))

    def _take(self, name: str, target: torch.Tensor) -> bool:
        """Notes what fills a target; whether anything does."""
        shape = tuple(target.shape)
        contents = self._memories.read(target, contiguous(shape))
        if target.numel() == 0 or all(content == NOTHING for _, content in contents):
            return bool(target.numel() == 0)
        try:
            spec = self._spec(name)
            for to, content in contents:
                self._place(spec, to, in_full(content, target.dtype))
        except (NoBox, Unsupported) as why:
            self._computed[name] = str(why)
        return True

    def _place(self, spec: TensorSpec, to: Slice, content: Content) -> None:
        if isinstance(content, Copied):
            self._copies.setdefault(spec.name, []).extend(self._copied(spec, to, content.source))
        elif isinstance(content, Filled):
            self._zeros.setdefault(spec.name, []).extend(self._zeroed(spec, to, content))
        elif content == NOTHING:
            raise NoBox(f"no source fills {math.prod(to.size)} of its {math.prod(spec.shape)} elements")
        else:
            raise NoBox(content)

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
            self._computed.setdefault(name, "filled with zeros that come of no source")
        else:
            self._copies[name] = [self._nothing(memory.empty[0], self._spec(name))]

    def _nothing(self, source: str, spec: TensorSpec) -> Copy:
        return Copy(source, spec.name, _nothing_of(self._shapes[source]), _nothing_of(spec.shape))

    def _spec(self, name: str) -> TensorSpec:
        target = self._targets[name]
        shape = tuple(target.shape)
        _refuse_axes(shape)
        return TensorSpec(name, safetensors_name(target.dtype), shape)

    def _refuse_sources_of_several_layers(self) -> None:
        """A receiver stages layer by layer: a tensor belongs to one."""
        first: dict[str, str] = {}
        for name, copies in self._copies.items():
            for copy in copies:
                other = first.setdefault(copy.source, name)
                if other.rpartition(".")[0] != name.rpartition(".")[0]:
                    self._computed.setdefault(name, f"'{copy.source}' goes into '{other}' too, of another layer")


def _nothing_of(shape: tuple[int, ...]) -> Box:
    return Box((0,) * len(shape), (0,) * len(shape))


_MOST_AXES = 4  # of a box (include/layercast/box.h)


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
