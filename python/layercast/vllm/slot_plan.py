"""Where vLLM puts the factors of an adapter in one of its slots, on one rank: its own code runs once, on tensors without
memory, and every copy that it makes is written down. So it holds for all kinds of layers and of parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from layercast.host.loaded import ZEROS_ALONE
from layercast.host.module_state import put_back
from layercast.host.recorder import record
from layercast.recording import Box, Copy, Recording
from layercast.tensor import TensorSpec

Tensors = dict[str, torch.Tensor]
Place = tuple[str, str, int | None]  # of a stacked tensor: the layer, its attribute, and which of several


@dataclass(frozen=True)
class SlotPlan:
    """Value.

    Args:
        recording: of the factors, by PEFT's names, into *images*: tensors of a slot as far as an adapter's ranks reach.
            What lies beyond is zero.
        places: of each image.
        scales: boxes of images that vLLM multiplies by a number: B by its scale.
        enabled: the layers, stacks of experts, that are told to have an adapter in the slot.
        unused: factors of which this rank takes nothing.
    """

    recording: Recording
    places: dict[str, Place]
    scales: tuple[tuple[str, Box, float], ...]
    enabled: tuple[str, ...]
    unused: frozenset[str]


def plan_slot(
    manager: Any, specs: Iterable[TensorSpec], read: Callable[[Tensors], Any], scale_of: dict[str, float]
) -> SlotPlan | None:
    """``read`` makes vLLM's model of factors, by PEFT's names; ``scale_of`` says what each is multiplied by.

    None: vLLM does not only copy. To be called on vLLM's thread, between two forward passes, since the manager's layers
    have other tensors meanwhile. Raises what vLLM raises.
    """
    specs = tuple(specs)
    with _one_slot(manager) as slot:

        def load(factors: Iterator[tuple[str, torch.Tensor]]) -> None:
            for tensor in slot.tensors.values():
                tensor.zero_()  # as a slot is before vLLM writes into it
            model = read(dict(factors))
            for factor in model.loras.values():
                factor.scaling = 1  # vLLM would multiply here
            manager._create_merged_loras_inplace(model)
            for path, layer in manager.modules.items():
                if of_layer := manager._get_lora_layer_weights(model, path):
                    layer.set_lora(0, of_layer.lora_a, of_layer.lora_b)

        loaded = record(load, slot.tensors, specs)
    left = {name: why for name, why in loaded.refused.items() if why != ZEROS_ALONE}
    if left or loaded.computed:
        return None
    recording = _trimmed(loaded.recording)
    scales = [(copy.parameter, copy.box, scale_of[copy.source]) for copy in recording.copies]
    used = {copy.source for copy in recording.copies}
    return SlotPlan(
        recording,
        {spec.name: slot.places[spec.name] for spec in recording.parameters},
        tuple(scaled for scaled in scales if scaled[2] != 1 and 0 not in scaled[1].extent),
        tuple(path for path, flags in slot.enabled.items() if flags[0]),
        frozenset(spec.name for spec in specs) - used,
    )


@dataclass
class _Slot:
    """A slot without memory, in the place of those that the layers have."""

    tensors: Tensors
    places: dict[str, Place]
    enabled: Tensors  # vLLM's flags of stacks of experts, by layer


@contextmanager
def _one_slot(manager: Any) -> Iterator[_Slot]:
    slot = _Slot({}, {}, {})

    def without_memory(path: str, attribute: str, index: int | None, stacked: torch.Tensor) -> torch.Tensor:
        name = f"{path}.{attribute}" + ("" if index is None else f"_{index}")
        slot.places[name] = path, attribute, index
        slot.tensors[name] = torch.empty((1, *stacked.shape[1:]), dtype=stacked.dtype, device="meta")
        return slot.tensors[name]

    with put_back(manager.modules.values()):
        for path, layer in manager.modules.items():
            layer.__dict__["reset_lora"] = lambda index: None
            for attribute, held in list(layer.__dict__.items()):
                if attribute == "adapter_enabled":
                    layer.__dict__[attribute] = slot.enabled[path] = torch.zeros(1, dtype=torch.int)
                elif attribute.endswith("_stacked") and isinstance(held, torch.Tensor):
                    layer.__dict__[attribute] = without_memory(path, attribute, None, held)
                elif attribute.endswith("_stacked") and isinstance(held, tuple):
                    layer.__dict__[attribute] = tuple(
                        without_memory(path, attribute, index, one) for index, one in enumerate(held)
                    )
        yield slot


def _trimmed(recording: Recording) -> Recording:
    """Of images: without the axis of slots, and without what lies beyond all that is copied."""
    copies = tuple(replace(copy, box=_without_slots(copy.box)) for copy in recording.copies)
    shapes = {spec.name: _reach(spec, copies) for spec in recording.parameters}
    return Recording(
        recording.sources,
        tuple(replace(spec, shape=shapes[spec.name]) for spec in recording.parameters),
        copies,
        {name: _clipped(boxes, shapes[name]) for name, boxes in recording.zeros.items()},
    )


def _without_slots(box: Box) -> Box:
    return Box(box.begin[1:], box.extent[1:])


def _reach(spec: TensorSpec, copies: Iterable[Copy]) -> tuple[int, ...]:
    boxes = [copy.box for copy in copies if copy.parameter == spec.name and 0 not in copy.box.extent]
    ends = [[b + n for b, n in zip(box.begin, box.extent)] for box in boxes]
    return tuple(map(max, zip(*ends))) if ends else tuple(spec.shape[1:])


def _clipped(boxes: Iterable[Box], shape: tuple[int, ...]) -> tuple[Box, ...]:
    """The parts of boxes, which still have the axis of slots, that lie within an image."""
    found = []
    for box in map(_without_slots, boxes):
        extent = tuple(max(0, min(b + n, end) - b) for b, n, end in zip(box.begin, box.extent, shape))
        if 0 not in extent:
            found.append(Box(box.begin, extent))
    return tuple(found)
