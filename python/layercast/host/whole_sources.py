"""Sources that a receiver takes whole, as further parameters: what an engine's own loader is given at a commit."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from layercast.host.loaded import Loaded
from layercast.recording import Box, Copy, Recording
from layercast.tensor import TensorSpec

# Of the last part of a whole source's name, before its number: Python allows no attribute of such a name.
PREFIX = "layercast_source:"


def beside(loaded: Loaded, parameters: Iterable[str]) -> Recording:
    """What is staged in memory of its own: these parameters, and whole each source of what the loader computes.

    A source belongs to one layer (TreeOf): to that of its copies, if it has any, else to that of what it feeds.
    """
    part = loaded.recording.taking(set(parameters))
    layer = {copy.source: _parent(copy.parameter) for copy in part.copies}
    for name, computed in loaded.computed.items():
        for source in computed.sources or ():
            layer.setdefault(source, _parent(name))
    number = {spec.name: index for index, spec in enumerate(part.sources)}
    names = {spec.name: f"{layer[spec.name]}{PREFIX}{number[spec.name]}" for spec in loaded.fed()}
    return Recording(
        part.sources,
        part.parameters + tuple(TensorSpec(names[spec.name], spec.dtype, spec.shape) for spec in loaded.fed()),
        part.copies + tuple(Copy(spec.name, names[spec.name], _all(spec), _all(spec)) for spec in loaded.fed()),
        part.zeros,
    )


def whole_sources(part: Recording, staged: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """By their own names, the sources that were staged whole: copies, for a loader may write what it is given."""
    return {copy.source: staged[copy.parameter].clone() for copy in part.copies if PREFIX in copy.parameter}


def _parent(name: str) -> str:
    """The path of the layer, with the dot after it."""
    return name[: name.rfind(".") + 1]


def _all(spec: TensorSpec) -> Box:
    return Box((0,) * len(spec.shape), spec.shape)
