"""What the benches add to vLLM's workers, by a general plug-in: a backend ``bench_gloo``, and ways to reload by RPC.

``bench_gloo`` is vLLM's nccl backend, tensor by tensor, with gloo in place of nccl: each tensor that the trainer
broadcasts is given to the model's load_weights, within vLLM's layerwise reload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from wire import Group, Placed, joined, mapped

BACKEND = "bench_gloo"


def register() -> None:
    """vLLM's entry point; may be called again."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory as factory
    from vllm.v1.worker.worker_base import WorkerBase

    if BACKEND not in factory._registry:
        factory.register_engine(BACKEND, "worker_ways", "GlooEngine")
    WorkerBase.bench_threads = lambda worker: torch.get_num_threads()
    WorkerBase.bench_open_gloo = _open_gloo
    WorkerBase.bench_gloo = _reload_by_gloo
    WorkerBase.bench_iterator = _reload_by_iterator


@dataclass
class InitInfo(WeightTransferInitInfo):
    port: int
    timeout: float = 60.0


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    names: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)


class GlooEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        parallel = self.parallel_config
        self._group: Group = joined(init_info.port, parallel.rank + 1, parallel.world_size + 1, init_info.timeout)

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        for name, dtype, shape in zip(update_info.names, update_info.dtypes, update_info.shapes):
            self.take(name, torch.empty(shape, dtype=getattr(torch, dtype)))

    def take(self, name: str, tensor: torch.Tensor) -> None:
        self._group.broadcast(tensor)
        self.model.load_weights([(name, tensor)])

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """The group goes with the process."""


def _open_gloo(worker: Any, port: int) -> None:
    engine = GlooEngine(None, worker.vllm_config, torch.device("cpu"), worker.get_model())
    engine.init_transfer_engine(InitInfo(port))
    worker.bench_gloo_engine = engine


def _reload_by_gloo(worker: Any, update: dict[str, Any]) -> None:
    """start, update and finish in one call, which leaves out two round trips that vLLM's own have."""
    engine = worker.bench_gloo_engine
    with set_current_vllm_config(worker.vllm_config), torch.inference_mode():
        engine.start_weight_update()
        engine.update_weights(update)
        engine.finish_weight_update()


def _reload_by_iterator(worker: Any, path: str, placed: list[list[Any]]) -> None:
    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        yield from mapped(path, [Placed(*each) for each in placed]).items()

    worker.reload_weights(weights_iterator=tensors())
