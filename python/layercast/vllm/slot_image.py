"""What a slot of vLLM's holds of an adapter on one rank, kept on the host, from where it is written into any slot."""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.lora_model import LoRAModel
from vllm.utils.torch_utils import PIN_MEMORY

from layercast.dtypes import torch_dtype
from layercast.offered import OfferedAdapter
from layercast.recording import Box
from layercast.vllm.slot_plan import SlotPlan, Tensors


class SlotImage(LoRAModel):
    """One of vLLM's models, as its registry has it, without the factors that vLLM would cut and scale: this rank's
    alone, as they lie in a slot. Immutable."""

    def __init__(self, id: int, plan: SlotPlan, images: Tensors) -> None:
        super().__init__(id, 0, {})
        self._plan = plan
        self._images = images

    def write(self, manager: Any, index: int) -> None:
        """Into a slot that is zero, between two forward passes."""
        for name, image in self._images.items():
            self._within(manager, name, index).copy_(image, non_blocking=True)
        for path in self._plan.enabled:
            manager.modules[path].adapter_enabled[index] = 1

    def differs(self, manager: Any, index: int) -> str:
        """The first tensor of a slot that does not hold what it should; "" if all do."""
        for name, image in self._images.items():
            if not torch.equal(_bits(self._within(manager, name, index).cpu()), _bits(image)):
                return name
        return ""

    def _within(self, manager: Any, name: str, index: int) -> torch.Tensor:
        """The part of a stacked tensor that an image fills."""
        path, attribute, of_several = self._plan.places[name]
        held = getattr(manager.modules[path], attribute)
        stacked: torch.Tensor = held if of_several is None else held[of_several]
        return stacked[index][_within_shape(self._images[name].shape)]


def take_images(adapter: OfferedAdapter, plan: SlotPlan) -> Tensors:
    """Takes this rank's part of an adapter, and no other bytes. Raises as OfferedAdapter.take."""
    images = {
        spec.name: torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), pin_memory=PIN_MEMORY)
        for spec in plan.recording.parameters
    }
    if images:
        adapter.take(plan.recording, images)
    for name, box, scale in plan.scales:
        images[name][_within_box(box)] *= scale  # in the slot's dtype, as vLLM does
    return images


def _within_shape(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, extent) for extent in shape)


def _within_box(box: Box) -> tuple[slice, ...]:
    return tuple(slice(begin, begin + extent) for begin, extent in zip(box.begin, box.extent))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)
