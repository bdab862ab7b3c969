"""The ``weight_transfer`` of TRL's AsyncGRPOTrainer. Users have it from ``layercast.trl``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from layercast.closing import OfOneProcess
from layercast.errors import FailedPrecondition
from layercast.integrations.engines import Engines
from layercast.publisher import Publisher


class Transfer(OfOneProcess):
    """TRL's ``WeightTransferProtocol``: each sync is a version that all engines commit. On the trainer's rank 0::

        transfer = layercast.trl.Transfer(["tcp://127.0.0.1:7800"])
        rollouts = layercast.trl.Rollouts(transfer, prompts, reward, tokenizer, args)
        AsyncGRPOTrainer(model, args=args, train_dataset=prompts, weight_transfer=transfer, rollout_worker=rollouts)

    Args:
        engines: endpoints of ``layercast serve``, or of vLLM servers with Layercast's door, which have an ``api_key``.
        bind, secret, insecure, lineage: as :class:`layercast.Publisher` takes them.
        all_or_none: either all engines commit a version, or none does.
        timeout: seconds that a reload, or a batch of rollouts, may take.

    A version's step is the trainer's ``model_version``. ``metrics`` is of the latest sync.
    """

    def __init__(
        self,
        engines: str | Iterable[str],
        *,
        bind: str = "tcp://127.0.0.1:0",
        secret: str = "",
        insecure: bool = False,
        lineage: str = "policy",
        all_or_none: bool = True,
        timeout: float = 300.0,
        api_key: str = "",
    ) -> None:
        self.metrics: dict[str, float] = {}
        self.engines = Engines(engines, timeout=timeout, api_key=api_key)
        self._all_or_none, self._step = all_or_none, 0
        self._publisher = Publisher(bind, secret=secret, insecure=insecure, lineage=lineage)

    def init_weight_transfer(self) -> None:
        """Raises Unavailable for an engine that does not answer."""
        self.engines.check_reachable()

    def pause(self) -> None:
        """Nothing: engines answer until the commit."""

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Publishes, and has the engines take it. Raises what failed; the engines then serve what they did."""
        published = self._publisher.publish(iterator, step=self._step + 1)
        if published is None:
            raise FailedPrecondition("expected the policy's tensors, got none")
        self._step += 1
        self.metrics = self.engines.reload(published, self._all_or_none)
        self.metrics["layercast/publish_s"] = published.seconds

    def resume(self) -> None:
        """Nothing, as :meth:`pause`."""

    def destroy(self) -> None:
        self.close()

    def close(self) -> None:
        self.engines.close()
        self._publisher.close()
