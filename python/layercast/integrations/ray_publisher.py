"""A trainer's ranks on Ray: actors that publish. Users have it from ``layercast.ray``."""

from __future__ import annotations

from typing import Any

from layercast.errors import InvalidArgument
from layercast.integrations.ray_registry import Registry, bind_address
from layercast.publisher import Publisher


class PublisherActor:
    """An actor that publishes, or the base of one that trains; each rank of a sharded trainer has one.

    Args:
        run: the name of its registry. Raises NotFound if there is none.
        rank, ranks: which rank of the trainer this is.
        lineage, secret, insecure: as :class:`layercast.Publisher` takes them; with one of the last two at the node's
            address.
    """

    def __init__(
        self,
        run: str,
        *,
        rank: int = 0,
        ranks: int = 1,
        lineage: str = "policy",
        secret: str = "",
        insecure: bool = False,
    ) -> None:
        if not 0 <= rank < ranks:
            raise InvalidArgument(f"rank: expected one of 0 to {ranks - 1}, got {rank}")
        self._registry, self._rank, self._ranks = Registry(run), rank, ranks
        self._lineage, self._secret, self._insecure = lineage, secret, insecure
        self._publisher: Publisher | None = None
        self.publish_anew()

    def publish_anew(self) -> None:
        """Forgets what was published: for all ranks, when they go back to an older step after one of them was lost."""
        if self._publisher is not None:
            self._publisher.close()
        at = bind_address(self._secret, self._insecure)
        self._publisher = Publisher(at, lineage=self._lineage, secret=self._secret, insecure=self._insecure)
        self._step: int | None = None
        self._registry.ask("publisher_started", self._rank)

    def publish(self, weights: Any, *, step: int, **options: Any) -> dict[str, float]:
        """As :meth:`layercast.Publisher.publish`, and tells the registry; of a step that is published, only that."""
        if step != self._step:
            assert self._publisher is not None
            published = self._publisher.publish(weights, step=step, run=self._registry.run, **options)
            self._part = None if published is None else (published.endpoint, published.version)
            self._seconds = 0.0 if published is None else published.seconds
            self._step = step
        self._registry.ask("published", step, self._rank, self._ranks, self._part)
        return {"layercast/version": float(step), "layercast/publish_s": self._seconds}
