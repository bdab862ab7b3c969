"""PEFT: what an adapter makes of the layer below it. PEFT's own merge computes it, in a copy of that one layer, so that
the trainer's weights keep their bits (merging in place and unmerging does not restore them in bf16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from layercast.errors import FailedPrecondition, InvalidArgument, Unsupported
from layercast.trainer.wrappers import is_a

How = Literal["merge", "base"]  # with the active adapters merged; or the weights below them, as they are
_LAYERS = "peft.tuners.tuners_utils"
_AUXILIARY = "peft.utils.other"


class AdaptedLayer:
    """A layer with an adapter. Refers to the trainer's modules."""

    def __init__(self, layer: Any, below: nn.Module) -> None:
        self.layer = layer  # PEFT's
        self.below = below  # what it changes; has the names and shapes of what is published

    def tensors(self) -> list[Tensor]:
        """All that the merge reads."""
        return [*self.layer.parameters(), *self.layer.buffers()]

    def merged(self, read: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """The tensors of the layer below with the adapter merged, in new memory. `read` gives the values of one of the
        trainer's tensors: it gathers what is sharded."""
        with torch.no_grad():
            copy = _copy(self.layer, read, {})
            if hasattr(copy, "unload_and_optionally_merge_module"):
                below = copy.unload_and_optionally_merge_module(merge=True, safe_merge=False, adapter_names=None)
            else:
                copy.merge(safe_merge=False, adapter_names=None)
                below = copy.get_base_layer()
        return {name: tensor.detach() for name, tensor in (*below.named_parameters(), *below.named_buffers())}


class Adapters:
    """How the adapters of a module are published."""

    def __init__(self, how: How) -> None:
        if how not in ("merge", "base"):
            raise InvalidArgument(f"adapters: expected 'merge' or 'base', got {how!r}")
        self._merge = how == "merge"

    def check_tuner(self, module: nn.Module) -> None:
        """Prompts that were learned are no part of the model's weights, so nothing can be merged."""
        if self._merge and is_a(module, "peft.peft_model", "PeftModel") and "prompt_encoder" in module._modules:
            raise Unsupported(
                f"{type(module).__name__} learns a prompt: expected adapters that can be merged into weights, or "
                "adapters='base'"
            )

    def replaced(self, module: nn.Module, prefix: str) -> nn.Module | AdaptedLayer | None:
        """What is published in place of a module of PEFT's; None: it is none."""
        if is_a(module, _AUXILIARY, "AuxiliaryTrainingWrapper"):
            return self._auxiliary(module)
        if is_a(module, _LAYERS, "BaseTunerLayer"):
            return self._tuned(module, prefix)
        return None

    def _auxiliary(self, wrapper: Any) -> nn.Module | AdaptedLayer:
        original: nn.Module = wrapper.original_module
        if not (self._merge and wrapper.active_adapters):
            return original
        if is_a(wrapper, _AUXILIARY, "ModulesToSaveWrapper"):
            saved: nn.Module = wrapper.modules_to_save[wrapper.active_adapters[0]]
            return saved
        return AdaptedLayer(wrapper, original)

    def _tuned(self, layer: Any, prefix: str) -> nn.Module | AdaptedLayer:
        below: nn.Module = layer.get_base_layer()
        if self._merge:
            left = set(layer.active_adapters) - set(layer.merged_adapters)
            return AdaptedLayer(layer, below) if left else below
        if layer.merged:
            raise FailedPrecondition(
                f"module '{prefix}': expected its base weights, got weights with {layer.merged_adapters} merged: "
                "unmerge first"
            )
        return below


def _copy(module: nn.Module, read: Callable[[Tensor], Tensor], memo: dict[int, Any]) -> Any:
    """A module like this one, with tensors of its own: what PEFT writes into them leaves the trainer's as they are."""
    if id(module) in memo:
        return memo[id(module)]
    copy = memo[id(module)] = object.__new__(type(module))
    copy.__dict__.update(module.__dict__)

    def own(tensor: Tensor) -> Tensor:
        if id(tensor) not in memo:
            memo[id(tensor)] = read(tensor).clone()
        value: Tensor = memo[id(tensor)]
        return value

    copy.__dict__["_parameters"] = {
        name: None if parameter is None else nn.Parameter(own(parameter), requires_grad=False)
        for name, parameter in module._parameters.items()
    }
    copy.__dict__["_buffers"] = {
        name: None if buffer is None else own(buffer) for name, buffer in module._buffers.items()
    }
    copy.__dict__["_modules"] = {
        name: None if child is None else _copy(child, read, memo) for name, child in module._modules.items()
    }
    if "merged_adapters" in module.__dict__:  # which a merge extends
        copy.__dict__["merged_adapters"] = list(module.__dict__["merged_adapters"])
    return copy
