"""slime and miles publish what their Megatron ranks hold, and engines commit it. Users have it as ``layercast.slime``, in a
module of theirs that slime's own arguments name::

    # my_run.py
    import layercast.slime
    engines = layercast.slime.Engines(["tcp://127.0.0.1:7800"])
    init, post_write = engines.init, engines.post_write

    --custom-megatron-init-path my_run.init                     # live: no gather, no files
    --custom-update-weight-post-write-path my_run.post_write    # or: the folder that slime writes
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from layercast.errors import Unsupported
from layercast.integrations.broadcast import Broadcast

_ACTORS = {"slime": "slime.backends.megatron_utils.actor", "miles": "miles.backends.megatron_utils.actor"}


class Engines:
    """Engines of a run, on each rank that trains. Nothing is bound before the first version.

    Args:
        engines: their endpoints.
        options: of :class:`layercast.integrations.broadcast.Broadcast`.
    """

    def __init__(self, engines: Iterable[str], **options: Any) -> None:
        self._engines, self._options = list(engines), options
        self._broadcast: Broadcast | None = None

    def init(self, args: Any) -> None:
        """``--custom-megatron-init-path``: where slime, or miles, would broadcast, it publishes."""
        for package, module in _ACTORS.items():
            if package in sys.modules:
                actor: Any = importlib.import_module(module)
                actor.UpdateWeightFromDistributed = self.updater

    def updater(self, *arguments: Any, **named: Any) -> Updater:
        return Updater(self.broadcast, *arguments, **named)

    def post_write(self, args: Any, version_dir: str, rollout_engines: Sequence[Any]) -> dict[str, float]:
        """``--custom-update-weight-post-write-path``: publishes the whole checkpoint that slime has written."""
        return self.broadcast.folder(version_dir)

    @property
    def broadcast(self) -> Broadcast:
        if self._broadcast is None:
            self._broadcast = Broadcast(self._engines, **self._options)
        return self._broadcast


class Updater:
    """Duck type of slime's and miles' ``UpdateWeightFromDistributed``."""

    def __init__(
        self,
        broadcast: Broadcast,
        args: Any,
        model: Sequence[Any],
        weights_getter: Any,
        *,
        model_name: str,
        quantization_config: Mapping[str, Any] | None,
        is_lora: bool = False,
    ) -> None:
        if is_lora:
            raise Unsupported("LoRA: what Megatron's parameters hold is published, without adapters")
        self.args, self.model = args, model
        self.weight_version = 0
        self.rollout_engines: Sequence[Any] | None = None
        self._broadcast, self._is_stale = broadcast, False
        self._metrics: dict[str, float] = {}

    def connect_rollout_engines(
        self, rollout_engines: Sequence[Any], rollout_engine_lock: Any, *places: Any, **named_places: Any
    ) -> None:
        """Nothing to connect: engines pull."""
        self.rollout_engines, self._is_stale = rollout_engines, False

    def disconnect_rollout_engines(self) -> None:
        """Nothing, as :meth:`connect_rollout_engines`."""

    def is_rollout_engines_fresh(self) -> bool:
        return self.rollout_engines is not None and not self._is_stale

    def mark_engine_connection_stale(self) -> None:
        self._is_stale = True

    def update_weights(self) -> None:
        """Each rank publishes its part (:mod:`layercast.megatron`). The step is ``weight_version``."""
        from layercast.integrations.megatron import publish

        self.weight_version += 1
        self._metrics = self._broadcast.by(
            lambda publisher, step: publish(publisher, self.model, self.args.hf_checkpoint, step=step),
            step=self.weight_version,
        )

    def pop_metrics(self) -> dict[str, float]:
        metrics, self._metrics = self._metrics, {}
        return metrics
