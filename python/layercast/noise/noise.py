"""Adaptive quantization noise (QeRL, arXiv 2510.11696), as publishers say it: docs/noise.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from layercast import _native
from layercast.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of one standard deviation, ``sigma``; each version draws its own, by the run's ``seed``, lineage and step."""

    sigma: float
    seed: int = 0

    def at(self, lineage: str, step: int) -> tuple[float, int] | None:
        """The sigma and the seed of that version; None: it has no noise."""
        return (self.sigma, _native.noise_seed(lineage, step, self.seed)) if self.sigma else None


@dataclass(frozen=True, slots=True)
class NoiseStages:
    """A schedule over a run of ``steps``: ``stages`` of equal length, the first without noise, and then sigma falls
    exponentially from ``start`` to ``end``. The numbers are QeRL's."""

    steps: int
    start: float = 1e-2
    end: float = 1e-4
    stages: int = 10
    seed: int = 0

    def at(self, lineage: str, step: int) -> tuple[float, int] | None:
        """As :meth:`Noise.at`. Raises InvalidArgument on numbers that make no schedule."""
        return _native.noise_at(lineage, step, self.start, self.end, self.stages, self.steps, self.seed)


def noise_options(noise: Noise | NoiseStages | None, lineage: str, step: int) -> dict[str, Any]:
    """What the extension's publisher is told of a version's noise."""
    if noise is not None and not isinstance(noise, (Noise, NoiseStages)):
        raise InvalidArgument(f"noise: expected layercast.Noise or layercast.NoiseStages, got {noise!r}")
    drawn = None if noise is None else noise.at(lineage, step)
    return {} if drawn is None else {"noise_sigma": drawn[0], "noise_seed": drawn[1]}
