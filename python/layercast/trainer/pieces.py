"""The pieces that one rank publishes, made while they are iterated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from layercast.errors import Unsupported
from layercast.trainer.adapters import AdaptedLayer
from layercast.trainer.conversions import Computed, Cut, compute
from layercast.trainer.dense import dense
from layercast.trainer.names import Held
from layercast.trainer.piece import Piece, Spec


class View(NamedTuple):
    """A piece that is a view of the tensor that this rank reads."""

    name: str
    whole: tuple[int, ...] | None  # None: the piece is all of the tensor
    cut: Cut

    @property
    def offsets(self) -> tuple[int, ...] | None:
        return None if self.whole is None else self.cut.offsets


@dataclass(slots=True, kw_only=True)
class Plan:
    """What becomes of the tensors that this rank reads. By the name of a held tensor; one that is in no dictionary is
    published as it is, whole, under its own name."""

    held: Sequence[Held]
    names: dict[str, str] = field(default_factory=dict)
    views: dict[str, tuple[View, ...]] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    computed: Sequence[Computed] = ()  # of tensors that are among `inputs`, not among `held`
    inputs: dict[str, Held] = field(default_factory=dict)


class Pieces:
    """The pieces that this rank publishes, in the module's order. They are made while they are iterated: what is cast,
    merged or gathered takes memory for one layer at a time, and each iteration makes it anew. Refers to the trainer's
    tensors, and most pieces are views of them. A piece's values are there when it is given, also on a device. One
    thread only, with the trainer's current CUDA stream."""

    def __init__(
        self,
        plan: Plan,
        *,
        model: Any = None,
        read: Callable[[Tensor], Tensor],
        gathers: bool = False,
        keep: bool = True,
        part: tuple[int, int] | None = (0, 1),
    ) -> None:
        """`model`: transformers' model, by whose rules tensors are computed. `read` gives a tensor's values on this
        rank. If it `gathers`, that is new memory, and a collective: ranks that do not keep it iterate too, and get
        nothing."""
        self._plan = plan
        self._model = model
        self._read = read
        self._held = not gathers
        self._keep = keep
        self._part = part

    @property
    def part(self) -> tuple[int, int] | None:
        """(rank, ranks) among the ranks that publish something; None: this rank has nothing to publish."""
        return self._part

    @property
    def makes_memory(self) -> bool:
        """Some pieces are no views of the trainer's tensors: they are cast, merged, computed or gathered."""
        plan = self._plan
        adapted = any(held.layer is not None for held in plan.held)
        return not self._held or bool(plan.dtypes) or bool(plan.computed) or adapted

    def specs(self) -> list[Spec]:
        """Of what an iteration will give, in its order. Reads no tensor."""
        return list(self._specs()) if self._keep else []

    def __len__(self) -> int:
        if not self._keep:
            return 0
        plan = self._plan
        views = sum(len(plan.views[held.name]) - 1 for held in plan.held if held.name in plan.views)
        return len(plan.held) + views + sum(len(computed.targets) for computed in plan.computed)

    def __iter__(self) -> Iterator[Piece]:
        names, views, dtypes, read = self._plan.names, self._plan.views, self._plan.dtypes, self._read
        merged, devices = _Merged(read), _Devices()
        for held in self._plan.held:
            name, tensor, layer, _ = held
            ready = dense(name, read(tensor) if layer is None else merged.of(held))
            if not self._keep:
                continue
            if name in dtypes:
                ready = ready.to(dtypes[name])
            if ready.is_cuda:
                devices.wait_for(ready, is_new=not self._held or layer is not None or name in dtypes)
            if name in views:
                for view in views[name]:
                    yield Piece(view.name, view.cut.of(ready), view.whole, view.offsets)
            else:
                yield Piece(names.get(name, name), ready)
        yield from self._computed(merged, devices)

    def _computed(self, merged: _Merged, devices: _Devices) -> Iterator[Piece]:
        for computed in self._plan.computed:
            sources = {}
            for name in computed.sources:
                held = self._plan.inputs[name]
                sources[name] = dense(name, self._read(held.tensor) if held.layer is None else merged.of(held))
            if self._keep:
                for name, tensor in compute(self._model, computed, sources).items():
                    ready = dense(name, tensor).to(self._dtype_of(computed, tensor.dtype))
                    if ready.is_cuda:
                        devices.wait_for(ready, is_new=True)
                    yield Piece(name, ready)

    def _specs(self) -> Iterator[Spec]:
        plan = self._plan
        for name, tensor, *_ in plan.held:
            dtype = plan.dtypes.get(name, tensor.dtype)
            if name in plan.views:
                for view in plan.views[name]:
                    yield Spec(view.name, dtype, view.cut.shape, view.whole, view.offsets)
            else:
                yield Spec(plan.names.get(name, name), dtype, tuple(tensor.shape))
        for computed in plan.computed:
            for name, (shape, dtype) in computed.targets.items():
                yield Spec(name, self._dtype_of(computed, dtype), shape)

    def _dtype_of(self, computed: Computed, dtype: torch.dtype) -> torch.dtype:
        """Computed tensors have the dtype of their first source."""
        return self._plan.dtypes.get(computed.sources[0], dtype)


class _Devices:
    """Waits for what the current stream of a device was asked to do: a publisher reads on streams of its own."""

    def __init__(self) -> None:
        self._waited: set[torch.device] = set()

    def wait_for(self, tensor: Tensor, *, is_new: bool) -> None:
        """The trainer's own tensors are there once its stream was waited for; one that is new, each time."""
        if is_new or tensor.device not in self._waited:
            torch.cuda.current_stream(tensor.device).synchronize()
            self._waited.add(tensor.device)


class _Merged:
    """Adapted layers, merged one at a time: tensors of one layer come one after the other."""

    def __init__(self, read: Callable[[Tensor], Tensor]) -> None:
        self._read = read
        self._layer: AdaptedLayer | None = None
        self._tensors: dict[str, Tensor] = {}

    def of(self, held: Held) -> Tensor:
        assert held.layer is not None
        if held.layer is not self._layer:
            self._tensors = {}  # the last layer's memory is free before the next one is merged
            self._layer, self._tensors = held.layer, held.layer.merged(self._read)
        tensor = self._tensors.get(held.key)
        got = None if tensor is None else (tuple(tensor.shape), tensor.dtype)
        if tensor is None or got != (tuple(held.tensor.shape), held.tensor.dtype):
            raise Unsupported(
                f"tensor '{held.name}': expected its adapter to make {list(held.tensor.shape)} {held.tensor.dtype} of "
                f"it, got {got}"
            )
        return tensor
