"""What a commit does beyond Layercast's own copy: vLLM's processing of layers that are not adopted, derived tensors."""

from __future__ import annotations

from typing import Any

import torch

from layercast.vllm.adoption import Adoption, Layer
from layercast.vllm.load_time import own_tensors, processed


def reload_layers(adoption: Adoption) -> None:
    """Makes the kernel tensors of each layer that is not adopted, from what was staged for it, and copies them in.

    All are made before the first is copied: what vLLM's code raises leaves the live weights as they were.
    """
    made = [(layer, processed(layer.module, _staged(adoption, layer))) for layer in adoption.reloaded()]
    for layer, tensors in made:
        live = own_tensors(layer.module)
        for name in tensors.keys() & live.keys():
            live[name].data.copy_(tensors[name])


def _staged(adoption: Adoption, layer: Layer) -> dict[str, torch.Tensor]:
    return {name: adoption.buffers[name] for name in layer.parameters}


def refresh_derived(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Computes again, in place, what attention layers have derived from their weights (MLA's W_UV and W_UK_T)."""
    for module in model.modules():
        if not _DERIVED & module.__dict__.keys() | _DERIVED & own_tensors(module).keys():
            continue
        before = _tensors(module)
        module.process_weights_after_loading(dtype)
        for name, tensor in _tensors(module).items():
            old = before.get(name)
            if old is None or old.data_ptr() == tensor.data_ptr():
                continue
            old.data.copy_(tensor)
            _put(module, name, old)


_DERIVED = {"W_UV", "W_UK_T", "W_K", "W_V"}


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    plain = {name: value for name, value in module.__dict__.items() if isinstance(value, torch.Tensor)}
    return plain | own_tensors(module)


def _put(module: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    place: dict[str, Any] = module.__dict__
    for own in (module._parameters, module._buffers):
        if name in own:
            place = own
    place[name] = tensor
