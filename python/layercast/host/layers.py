"""What plug-ins ask of each layer that a load fills: its parameters, what a recipe makes of them, and where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from layercast.errors import Unsupported
from layercast.host.memory import Computed
from layercast.host.views import NotAdoptable, tensor_in
from layercast.receiver import buffer_specs
from layercast.recording import Recording

FULL_PRECISION = ("BF16", "F16", "F32")


def by_layer(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The full names of each layer's tensors, by the layer's path."""
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return {path: tuple(names) for path, names in layers.items()}


def refuse(refused: dict[str, str]) -> None:
    """Raises Unsupported for targets that the loader makes of something other than the version's tensors."""
    if refused:
        name, why = next(iter(refused.items()))
        more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise Unsupported(f"'{name}'{more}: expected a loader that makes it of tensors of the version alone ({why})")


def why_left(names: tuple[str, ...], computed: dict[str, Computed]) -> str:
    """Why a layer is left to the engine's own loader: the first of these that it computes; "" if it computes none."""
    return next((f"'{name}': {computed[name].why}" for name in names if name in computed), "")


def one_recipe(recipes: Iterable[str]) -> str:
    """The recipe of all layers that have one; "none" if none has. Raises Unsupported if they differ."""
    named = sorted(set(recipes) - {"none"})
    if len(named) > 1:
        raise Unsupported(f"expected one recipe for all layers, got {' and '.join(named)}")
    return named[0] if named else "none"


def quantized(names: Iterable[str], recording: Recording) -> frozenset[str]:
    """Of these parameters, of layers that have a recipe, those that it applies to: weights in full precision."""
    wide = {spec.name for spec in recording.parameters if spec.dtype in FULL_PRECISION and len(spec.shape) > 1}
    return frozenset(name for name in names if name.endswith("weight") and name in wide)


def buffers_in(tensors: dict[str, torch.Tensor], part: Recording, recipe: str) -> dict[str, torch.Tensor]:
    """What a receiver writes of one layer, by kernel name: views of the layer's kernel tensors, which are given by
    their own names. Raises NotAdoptable."""
    found = {}
    for spec in buffer_specs(part, quantization=recipe):
        name = spec.name.rpartition(".")[2]
        if name not in tensors:
            raise NotAdoptable(f"it has no tensor '{name}'")
        found[spec.name] = tensor_in(tensors[name].data, spec)
    return found


def kind_of(module: torch.nn.Module, tensors: dict[str, torch.Tensor], part: Recording, recipe: str) -> Any:
    """Equal for layers of which one self check speaks for all: the same classes, shapes and placements."""
    return (
        type(module),
        type(getattr(module, "quant_method", None)),
        recipe,
        tuple((spec.name.rpartition(".")[2], spec.dtype, spec.shape) for spec in part.parameters),
        tuple((name, t.dtype, tuple(t.shape), t.stride()) for name, t in tensors.items()),
        tuple((spec.dtype, spec.shape) for spec in part.sources),
        tuple((copy.source_box, copy.box, copy.transposed) for copy in part.copies),
    )
