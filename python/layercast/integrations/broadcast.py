"""A trainer's weights as a version that all engines of its run commit, or none: what stands where a trainer broadcasts.
What the integrations of OpenRLHF, SkyRL, slime, NeMo-RL and prime-rl share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from layercast.closing import OfOneProcess
from layercast.errors import FailedPrecondition, InvalidArgument
from layercast.integrations.engines import Engines
from layercast.integrations.ranks import from_all, from_main, this_rank
from layercast.publisher import Published, Publisher


class Takers(Protocol):
    """Engines, as :class:`Broadcast` has them take a version."""

    def reload(self, source: list[str], all_or_none: bool) -> dict[str, float]:
        """``source``: the endpoints of all publishers of the version. Returns metrics."""

    def close(self) -> None: ...


class Broadcast(OfOneProcess):
    """One on each rank of a trainer; rank 0 tells the engines.

    Args:
        engines: endpoints as :class:`layercast.Controller` takes them, or what has ``reload`` and ``close``.
        bind, lineage: as :class:`layercast.Publisher` takes them. Keys are those of the environment.
        all_or_none: either all engines commit a version, or none does.
        timeout: seconds that a reload may take.
        api_key: of vLLM servers that were started with one.

    ``metrics`` is of the latest version. What fails raises a subclass of :class:`layercast.Error` on all ranks, and engines
    serve what they did.
    """

    def __init__(
        self,
        engines: str | Iterable[str] | Takers,
        *,
        bind: str = "tcp://127.0.0.1:0",
        lineage: str = "policy",
        all_or_none: bool = True,
        timeout: float = 300.0,
        api_key: str = "",
    ) -> None:
        self.metrics: dict[str, float] = {}
        self.step = 0
        takers = engines if hasattr(engines, "reload") else Engines(engines, timeout=timeout, api_key=api_key)
        self._engines: Takers = takers  # type: ignore[assignment]
        self._all_or_none = all_or_none
        self._publisher = Publisher(bind, lineage=lineage)

    @property
    def endpoint(self) -> str:
        """Of this rank's publisher."""
        return self._publisher.endpoint

    @property
    def lineage(self) -> str:
        return self._publisher.lineage

    def held(self, weights: Any, *, step: int | None = None) -> dict[str, float]:
        """Each rank publishes what it holds of a module, or of a state dict; nothing is gathered. A collective."""
        return self.by(lambda publisher, step: publisher.publish(weights, step=step), step=step)

    def walked(self, pairs: Iterable[tuple[str, Any]], *, step: int | None = None) -> dict[str, float]:
        """Of whole tensors, whose walk may be a collective: every rank walks to the end, and rank 0 publishes."""

        def publish(publisher: Publisher, step: int) -> Published | None:
            walk = iter(pairs)
            try:
                if this_rank() == 0:
                    return _some(publisher.publish(walk, step=step, rank=(0, 1)))
                return None
            finally:  # the others wait for a rank that fails, too
                for _ in walk:
                    pass

        return self.by(publish, step=step)

    def folder(self, path: str | os.PathLike[str], *, step: int | None = None) -> dict[str, float]:
        """Rank 0 publishes the whole checkpoint that lies there once every rank has come here. A collective."""
        from_all(lambda: None)

        def publish(publisher: Publisher, step: int) -> Published | None:
            return publisher.publish(path, step=step, rank=(0, 1)) if this_rank() == 0 else None

        return self.by(publish, step=step)

    def by(self, publish: Callable[[Publisher, int], Published | None], *, step: int | None = None) -> dict[str, float]:
        """``publish(publisher, step)`` is called on every rank, and None where it has nothing. By default steps count."""
        self.step = self.step + 1 if step is None else step

        def endpoint() -> str | None:
            published = publish(self._publisher, self.step)
            return None if published is None else published.endpoint

        began = time.perf_counter()
        endpoints = [endpoint for endpoint in from_all(endpoint) if endpoint]
        seconds = time.perf_counter() - began
        took = from_main(lambda: self._engines.reload(endpoints, self._all_or_none), this_rank() == 0)
        self.metrics = {**took, "layercast/publish_s": seconds}
        return self.metrics

    def close(self) -> None:
        self._engines.close()
        self._publisher.close()


def engines_of_run(engines: str | Iterable[str] | None = None) -> list[str]:
    """The endpoints that are given, or those of ``LAYERCAST_ENGINES``, separated by commas: a trainer's actors have the
    environment that they were started in. Raises InvalidArgument where there are none."""
    given = os.environ.get("LAYERCAST_ENGINES", "").split(",") if engines is None else engines
    found = [given] if isinstance(given, str) else [endpoint for endpoint in given if endpoint]
    if not found:
        raise InvalidArgument("engines: expected their endpoints, as an argument or in LAYERCAST_ENGINES, got none")
    return found


def _some(published: Published | None) -> Published:
    if published is None:
        raise FailedPrecondition("expected the policy's tensors, got none")
    return published
