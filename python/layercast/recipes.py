"""Recipes by themselves: what a weight becomes in an engine's buffers, and back."""

from __future__ import annotations

from typing import Any

from layercast import _native
from layercast.tensor import Tensor


def known_recipes() -> list[str]:
    """The names of this build's recipes. engine_side/quant/RECIPES.md says what each computes."""
    return _native.known_recipes()


def quantize(
    weight: Any, recipe: str = "fp8_per_channel", *, power_of_two_scales: bool = False, threads: int = 2
) -> dict[str, Tensor]:
    """Quantizes a weight ``[rows, columns]`` of float32, bfloat16 or float16 (torch, numpy, DLPack).

    Returns the kernel tensors by what stands in place of ``weight`` in their names, codes first:
    ``{"weight": F8_E4M3 [rows, columns], "weight_scale": F32 [rows, 1]}`` for fp8_per_channel. The bytes are those
    that every engine with this recipe serves.

    Raises InvalidArgument (shape, recipe), Corrupt (NaN or infinity, with row and column).
    """
    tensors = _native.quantize(weight, recipe, power_of_two_scales, threads)
    return {name: Tensor(dtype, shape, data) for name, dtype, shape, data in tensors}


def dequantize(
    tensors: dict[str, Any], recipe: str, shape: tuple[int, int], *, dtype: str = "bfloat16", threads: int = 2
) -> Tensor:
    """The weight that kernel tensors stand for: code * scale in fp32, rounded to ``dtype``.

    ``tensors`` are those of :func:`quantize`, in its order; ``shape`` is the weight's.
    """
    data = _native.dequantize(list(tensors.values()), recipe, dtype, shape[0], shape[1], threads)
    return Tensor({"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[dtype], tuple(shape), data)
