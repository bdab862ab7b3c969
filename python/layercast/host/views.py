"""Where in an engine's memory a tensor of Layercast's lies: the table *kernel layout -> ours*."""

from __future__ import annotations

import math

import torch

from layercast.dtypes import torch_dtype
from layercast.tensor import TensorSpec


class NotAdoptable(Exception):
    pass


def tensor_in(live: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """The view of an engine's memory that is the tensor ``spec``: transposed, padded, or in another number of axes.

    kernel layout -> ours: the same; [K, N] of strides (1, K) (torch._scaled_mm, Cutlass); rows and columns padded to
    multiples of 16 (Cutlass); a number as [1] or []; scales [N] or [1, N] for [N, 1]; column-major scales (DeepGEMM).
    """
    if live.dtype != torch_dtype(spec.dtype):
        raise NotAdoptable(f"'{spec.name}': expected {torch_dtype(spec.dtype)}, got {live.dtype}")
    shape = tuple(spec.shape)
    ways = [live, live.transpose(-1, -2)] if live.dim() > 1 else [live]
    ways.sort(key=lambda way: not way.is_contiguous())  # of a square, the one that lies as ours
    for way in ways:
        if tuple(way.shape) == shape:
            return way
    if live.numel() == math.prod(shape) and live.is_contiguous():
        return live.view(shape)
    for way in ways:
        if way.dim() == len(shape) and all(_padded(extent) == have for extent, have in zip(shape, way.shape)):
            return way[tuple(slice(0, extent) for extent in shape)]
    if live.dim() == 1 and shape[1:] == (1,) and _padded(shape[0]) == live.shape[0]:
        return live[: shape[0]].unsqueeze(1)
    raise NotAdoptable(f"'{spec.name}': expected {list(shape)}, got {list(live.shape)} strides {list(live.stride())}")


_ALIGNMENT = 16


def _padded(extent: int) -> int:
    return math.ceil(extent / _ALIGNMENT) * _ALIGNMENT if extent > 1 else extent
