"""What publishers offer, and a version of theirs as tensors on the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from layercast import _native
from layercast._native import Version
from layercast.dtypes import torch_dtype
from layercast.receiver import Receiver
from layercast.recording import Box, Copy, Recording
from layercast.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class Offered:
    """A version that publishers have. ``config`` is the text of its model's config.json; "": they have none."""

    version: Version
    specs: tuple[TensorSpec, ...]
    config: str


def offered(
    endpoints: str | Iterable[str], *, lineage: str = "", step: int | None = None, timeout: float = 10.0
) -> Offered:
    """Asks the publishers of a trainer's ranks for a version, by default the newest, and takes none of its bytes.

    Raises Unavailable, DeadlineExceeded (after ``timeout`` seconds), NotFound.
    """
    version, specs, config = _native.published(endpoints_of(endpoints), lineage, step, timeout)
    return Offered(version, tuple(TensorSpec(*spec) for spec in specs), config)


def endpoints_of(endpoints: str | Iterable[str]) -> list[str]:
    """A list, or endpoints separated by commas."""
    return endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)


def fetch(
    endpoints: str | Iterable[str], *, lineage: str = "", step: int | None = None, timeout: float = 300.0
) -> tuple[Version, dict[str, Any]]:
    """A whole version as torch tensors on the host, by name, in the publisher's order.

    Raises as :func:`offered`, and Corrupt.
    """
    import torch

    endpoints = endpoints_of(endpoints)
    found = offered(endpoints, lineage=lineage, step=step, timeout=timeout)
    tensors = {spec.name: torch.empty(spec.shape, dtype=torch_dtype(spec.dtype)) for spec in found.specs}
    with Receiver(_as_they_are(found.specs), buffers=tensors, commit="in_place", timeout=timeout) as receiver:
        receiver.reload_weights(endpoints, lineage=found.version.lineage, step=found.version.step)
    return found.version, tensors


def _as_they_are(specs: tuple[TensorSpec, ...]) -> Recording:
    def whole(spec: TensorSpec) -> Box:
        return Box((0,) * len(spec.shape), tuple(spec.shape))

    copies = tuple(Copy(spec.name, spec.name, whole(spec), whole(spec)) for spec in specs)
    return Recording(specs, specs, copies, {})
