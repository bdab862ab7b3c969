"""What a model derives from its weights after a load (MLA's w_kc and w_vc): computed again, in place."""

from __future__ import annotations

from typing import Any

import torch

from layercast.errors import Internal
from layercast.sglang.twin import own_tensors


def refresh_derived(model: torch.nn.Module) -> None:
    """Calls ``model.post_load_weights()`` if it exists. Where it made a new tensor, the old one, whose address CUDA
    graphs know, gets the values and its place back. Raises Internal if one has another shape than before."""
    if not hasattr(model, "post_load_weights"):
        return
    before = [(path, module, own_tensors(module)) for path, module in model.named_modules()]
    with torch.no_grad():
        model.post_load_weights()
        for path, module, old in before:
            for name, tensor in own_tensors(module).items():
                if name in old and old[name] is not tensor:
                    _keep(f"{path}.{name}", module, name, old[name], tensor)


def _keep(full_name: str, module: torch.nn.Module, name: str, old: torch.Tensor, new: torch.Tensor) -> None:
    if (old.shape, old.dtype, old.device) != (new.shape, new.dtype, new.device):
        raise Internal(f"'{full_name}': expected {list(old.shape)} {old.dtype}, got {list(new.shape)} {new.dtype}")
    if old.data_ptr() != new.data_ptr():
        old.data.copy_(new.data)
    places: tuple[dict[str, Any], ...] = (module._parameters, module._buffers, module.__dict__)
    next(place for place in places if name in place)[name] = old
