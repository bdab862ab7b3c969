"""Kernel tensors that an engine's own code has made in fresh memory, until a commit copies them into place."""

from __future__ import annotations

from typing import Any

import torch

from layercast.errors import Unsupported
from layercast.host.operators import tensors_in

Tensors = dict[str, torch.Tensor]


def require_fit(path: str, made: Tensors, live: Tensors) -> None:
    """Raises Unsupported unless a layer's tensors can be copied into those that are served."""
    for name in made.keys() & live.keys():
        new, old = made[name], live[name]
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            raise Unsupported(
                f"layer {path}: '{name}': the engine serves {list(old.shape)} {old.dtype}, and its own code makes "
                f"{list(new.shape)} {new.dtype} of the same weights"
            )


def refuse_stale(path: str, made: dict[str, Any], live: dict[str, Any]) -> None:
    """Raises Unsupported where copies of tensors do not bring all that a layer's processing leaves up to date (its
    attributes by name, tensors among them): numbers that it makes of weights, tensors in lists and the like, and those
    that it does not make. Values within other objects are not seen."""
    of_every_module = vars(torch.nn.Module()).keys()
    for name in made.keys() - of_every_module:
        value = made[name]
        number = isinstance(value, (int, float)) and value != live.get(name)
        if number or (isinstance(value, (list, tuple, dict)) and any(tensors_in(value))):
            raise Unsupported(f"layer {path}: its processing leaves values outside of its own tensors, in '{name}'")
    for name in live.keys() - made.keys():
        if isinstance(live[name], torch.Tensor):
            raise Unsupported(f"layer {path}: the engine serves '{name}', which its processing does not make")


def copy_in(made: Tensors, live: Tensors) -> None:
    """Addresses stay."""
    for name in made.keys() & live.keys():
        live[name].data.copy_(made[name])
