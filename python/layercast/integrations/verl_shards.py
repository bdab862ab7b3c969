"""verl's FSDP2 engine as one that hands over its module, so that :mod:`layercast.verl` gathers nothing. In the environment of
verl's workers::

    VERL_USE_EXTERNAL_MODULES=layercast.verl_shards VERL_ENGINE_VENDOR=layercast
"""

from __future__ import annotations

from typing import Any

from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp import FSDPEngineWithLMHead


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device=["cuda", "npu"], vendor="layercast")
class ShardedEngine(FSDPEngineWithLMHead):
    def get_per_tensor_param(self, **options: Any) -> tuple[Any, Any]:
        """The module, when a checkpoint engine asks; of rollouts in the same processes, which give options, as ever."""
        return super().get_per_tensor_param(**options) if options else (self.module, None)
