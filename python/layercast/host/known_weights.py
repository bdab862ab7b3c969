"""Known weights: what a self check loads twice, by the engine's own code and by Layercast, and compares."""

from __future__ import annotations

import zlib
from typing import Any

import torch

from layercast.dtypes import torch_dtype
from layercast.recording import Recording


# A self check is made with each of these as the largest magnitude m. With 49/128, whose 448th part is exact, weights
# lie midway between codes of FP8 when they are divided by that scale, and beside the middle when they are multiplied by
# its reciprocal or by 448 / m. With 3/8, the scales differ: m / 448, m * (1 / 448) and 1 / (448 / m).
LARGEST = (49 / 128, 3 / 8)


def known_weights(part: Recording, largest: float = LARGEST[0]) -> dict[str, torch.Tensor]:
    """Random values of the range of weights, above zero for scales: the same on every rank, others for each tensor.

    They tell recipes apart that differ in rounding alone: the largest magnitude of most rows is ``largest``, and that
    of one row is tiny. Every second column has values of bf16, whatever the dtype.
    """
    sources = {}
    for spec in part.sources:
        random = torch.Generator().manual_seed(zlib.crc32(repr((spec.name, spec.shape)).encode()))
        values = torch.randn(spec.shape, generator=random) * 0.05
        if "scale" in spec.name.rpartition(".")[2]:
            values = values.abs() + 0.01
        elif values.dim() > 1:
            values[..., ::2] = values[..., ::2].bfloat16().float()
            values.clamp_(-0.2, 0.2)[..., 0] = largest
            values[..., -1, :] *= 2.0**-14
        sources[spec.name] = values.to(torch_dtype(spec.dtype))
    return sources


def replayed(part: Recording, sources: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The recording replayed by torch's copies: load-time parameters by full name."""
    parameters = {spec.name: torch.empty(spec.shape, dtype=torch_dtype(spec.dtype)) for spec in part.parameters}
    for name, boxes in part.zeros.items():
        for box in boxes:
            parameters[name][_index(box)].zero_()
    for copy in part.copies:
        source = sources[copy.source][_index(copy.source_box)]
        to = parameters[copy.parameter][_index(copy.box)]
        if copy.transposed:
            source = source.transpose(-1, -2)
        to.copy_(source.reshape(to.shape))
    return parameters


def _index(box: Any) -> tuple[slice, ...]:
    return tuple(slice(begin, begin + extent) for begin, extent in zip(box.begin, box.extent))


def difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> str:
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            return f"'{name}' is there on one side alone"
        if ours[name].shape != theirs[name].shape or ours[name].stride() != theirs[name].stride():
            return f"'{name}': expected {list(theirs[name].shape)} {theirs[name].stride()}, got {list(ours[name].shape)}"
        different = _bytes_of(ours[name]) != _bytes_of(theirs[name])
        if different.any():
            return f"'{name}': {int(different.sum())} of {different.numel()} bytes of known weights differ from the engine's"
    return ""


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor.data)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
