"""Modules that are changed for a while: everything that they have is put back afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def put_back(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """The modules' tensors and attributes are afterwards those of before. Their bytes are whatever was written."""
    kept = [(module, _state(module)) for module in modules]
    try:
        yield
    finally:
        for module, state in kept:
            module.__dict__.clear()
            module.__dict__.update(state)


_OWN = ("_parameters", "_buffers", "_non_persistent_buffers_set")


def _state(module: torch.nn.Module) -> dict[str, Any]:
    return {**module.__dict__, **{name: getattr(module, name).copy() for name in _OWN}}


def like(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """``data`` as what ``tensor`` is: a parameter of the same class, with the same attributes (its loader), or none."""
    if not isinstance(tensor, torch.nn.Parameter):
        return data
    made: torch.Tensor = torch.Tensor._make_subclass(type(tensor), data, False)
    made.__dict__.update(tensor.__dict__)
    return made


def put(module: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    """In the place of the tensor that the module has under this name."""
    places: tuple[dict[str, Any], ...] = (module._parameters, module._buffers, module.__dict__)
    next(place for place in places if name in place)[name] = tensor
