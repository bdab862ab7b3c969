"""SkyRL sends each new policy as a version that all inference servers commit. Users have it as ``layercast.skyrl``::

    layercast.skyrl.install()

in the processes that train, before ``init_weight_sync_state``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from layercast.integrations.broadcast import Broadcast


def install(engines: Iterable[str] | None = None, **options: Any) -> None:
    """Has SkyRL's workers of this process choose Layercast's strategy, whatever ``weight_sync_backend`` says.

    Args:
        engines: endpoints of engines; by default the servers of SkyRL's own client, which are vLLM with Layercast's door.
        options: of :class:`layercast.integrations.broadcast.Broadcast`.
    """
    from skyrl.backends.skyrl_train import weight_sync

    chosen = strategy(engines, **options)
    weight_sync.get_transfer_strategy_cls = lambda weight_sync_backend, colocate_all: chosen


def strategy(engines: Iterable[str] | None = None, **options: Any) -> type:
    """A ``WeightTransferStrategy`` of SkyRL's, for :func:`install`."""
    from skyrl.backends.skyrl_train.weight_sync import WeightSyncInitInfo, WeightTransferSender, WeightTransferStrategy

    class InitInfo(WeightSyncInitInfo):  # type: ignore[misc]
        """Servers adopt their buffers with the first version: there is nothing to tell them before."""

        def for_servers(self, world_size_per_server: int, num_servers: int, dp_size: int = 1) -> list[InitInfo]:
            return [self] * num_servers

        def to_api_payload(self) -> dict[str, Any]:
            return {}

    class Sender(WeightTransferSender):  # type: ignore[misc]
        def __init__(self, broadcast: Broadcast) -> None:
            self.broadcast = broadcast

        @property
        def metrics(self) -> dict[str, float]:
            return self.broadcast.metrics

        async def send_chunks(
            self, chunks: Iterable[Any], weight_metadata: dict[str, list[Any]] | None = None, **_: Any
        ) -> dict[str, float]:
            """On all ranks: walking the chunks gathers them. SkyRL's servers go on answering."""
            return self.broadcast.walked(_pairs(chunks))

        def teardown(self) -> None:
            self.broadcast.close()

    class Strategy(WeightTransferStrategy):  # type: ignore[misc]
        @staticmethod
        def create_init_info(ie_cfg: Any, inference_world_size: int | None = None) -> InitInfo:
            return InitInfo(override_existing_receiver=not ie_cfg.run_engines_locally)

        @staticmethod
        def get_vllm_transfer_engine() -> type:
            from layercast.vllm.worker import LayercastEngine

            return LayercastEngine

        @staticmethod
        def create_sender(init_info: InitInfo, inference_client: Any) -> Sender:
            return Sender(Broadcast(inference_client.server_urls if engines is None else engines, **options))

    return Strategy


def _pairs(chunks: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for chunk in chunks:
        yield from zip(chunk.names, chunk.tensors, strict=True)
