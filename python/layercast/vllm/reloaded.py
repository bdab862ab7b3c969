"""What vLLM's own code does for a version: kernel tensors of layers that are not adopted, and derived tensors."""

from __future__ import annotations

from typing import Any

import torch

from layercast.host.loader_run import Tensors, computed_values, prove_loader
from layercast.host.made import copy_in, require_fit
from layercast.host.whole_sources import whole_sources
from layercast.vllm.adoption import Adoption, Layer
from layercast.vllm.load_time import load_time, own_tensors, processed, tensors_of

Made = list[tuple[Layer, Tensors]]


def made(model: torch.nn.Module, adoption: Adoption, staged: Tensors) -> Made:
    """The kernel tensors of each layer that is not adopted, in fresh memory, of what was staged for it.

    To be called on all ranks at once: vLLM's code may communicate. Raises what it raises, and Unsupported where they
    would not fit; the live weights are as they were.
    """
    values = staged | _computed(model, adoption, whole_sources(adoption.beside, staged))
    found = []
    for layer in adoption.reloaded():
        tensors = processed(layer.module, {name: values[name] for name in (*layer.parameters, *layer.computed)})
        require_fit(layer.path, tensors, own_tensors(layer.module))
        found.append((layer, tensors))
    return found


def copy_made(found: Made) -> None:
    for layer, tensors in found:
        copy_in(tensors, own_tensors(layer.module))


def prove_computed(model: torch.nn.Module, adoption: Adoption) -> None:
    """Raises Unsupported for what cannot be left to vLLM's loader: prove_loader."""
    prove_loader(lambda sources, fill: _computed(model, adoption, sources, fill), adoption.loaded, "vLLM's")


def _computed(model: torch.nn.Module, adoption: Adoption, sources: Tensors, fill: int = 0) -> Tensors:
    if not adoption.loaded.computed:
        return {}
    live = list(tensors_of(model).values())
    with load_time(model):
        return computed_values(model.load_weights, model, adoption.loaded, sources, live, fill)


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
