"""NeMo-RL's refit over Layercast, as a checkpoint engine that its configuration names. Users have it as
``layercast.nemo_rl``::

    policy:
      generation:
        refit_transport: "layercast.nemo_rl:Engine"
        refit_cfg:
          "layercast.nemo_rl:Engine": {release_after_refit: false}
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from layercast.errors import FailedPrecondition, NotFound
from layercast.integrations.broadcast import Broadcast

_LOOK = 0.05  # seconds between two questions whether a version is published


class Engine:
    """Duck type of NeMo-RL's ``CheckpointEngine``, in each policy worker and in each of vLLM's workers.

    Without ``engines`` it carries: rollout workers fetch the version that the policy has published, and NeMo-RL loads it. With
    them it drives: they take the version, all or none, and rollout workers get nothing.

    Args:
        bucket_size: of no use here: a version is not cut into buckets.
        engines: endpoints.
        options: of :class:`layercast.integrations.broadcast.Broadcast`.
    """

    shard_expert_weights = False

    def __init__(
        self,
        bucket_size: int,
        *,
        engines: Iterable[str] = (),
        release_after_refit: bool = False,
        timeout: float = 300.0,
        **options: Any,
    ) -> None:
        self._engines, self._options, self._timeout = list(engines), options, timeout
        self._broadcast: Broadcast | None = None
        self._source: tuple[str, str] | None = None  # endpoint and lineage of the policy's first rank
        self._received = 0

    def get_target_weight_layout(self) -> None:
        """Tensors go whole."""

    def prepare(self) -> dict[str, Any]:
        """A worker does not know yet on which side it is, and so binds a publisher."""
        if self._broadcast is None:
            takers = self._engines or _Nobody()
            self._broadcast = Broadcast(takers, timeout=self._timeout, **self._options)
        return {"endpoint": self._broadcast.endpoint, "lineage": self._broadcast.lineage, "step": self._broadcast.step}

    def init_policy_process_group(
        self, *, worker_rank: int, train_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> None:
        """Nothing: rollout workers come to the publisher."""

    def init_rollout_process_group(
        self, *, rollout_rank: int, train_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> None:
        policy = metadata[0]
        self._source, self._received = (policy["endpoint"], policy["lineage"]), policy["step"]
        self._close()

    async def send_weights(self, weights: Iterable[tuple[str, Any]]) -> dict[str, float]:
        """Called on every policy rank, since the walk gathers. Raises where engines could not take the version."""
        if self._broadcast is None:
            raise FailedPrecondition("send_weights: expected prepare before")
        return self._broadcast.walked(weights)

    async def receive_weight_batches(self) -> AsyncGenerator[list[tuple[str, Any]], None]:
        """One batch of all tensors, on the host; none where engines are driven."""
        self._received += 1
        if not self._engines:
            yield list(self._fetched().items())

    def finalize(self) -> None:
        """Nothing is held but the publisher, which keeps its endpoint from one refit to the next."""

    def _fetched(self) -> dict[str, Any]:
        from layercast.offered import fetch

        if self._source is None:
            raise FailedPrecondition("receive_weight_batches: expected init_rollout_process_group before")
        endpoint, lineage = self._source
        began = time.monotonic()
        while True:  # the policy sends meanwhile
            try:
                return fetch(endpoint, lineage=lineage, step=self._received, timeout=self._timeout)[1]
            except NotFound:
                if time.monotonic() - began > self._timeout:
                    raise
                time.sleep(_LOOK)

    def _close(self) -> None:
        if self._broadcast is not None:
            self._broadcast.close()
            self._broadcast = None


class _Nobody:
    """No engine is told: rollout workers fetch by themselves."""

    def reload(self, source: list[str], all_or_none: bool) -> dict[str, float]:
        return {}

    def close(self) -> None: ...
