"""verl: the checkpoint engine ``layercast``, which is registered by importing this, as verl's ``custom_backend_module`` does::

    actor_rollout_ref.rollout.checkpoint_engine:
      backend: layercast
      custom_backend_module: layercast.verl
      engine_kwargs: {layercast: {engines: ["tcp://127.0.0.1:7800"]}}
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from typing import Any

import torch
from layercast.closing import OfOneProcess
from layercast.errors import FailedPrecondition, InvalidArgument
from layercast.integrations.engines import Engines
from layercast.integrations.ranks import from_all
from layercast.integrations.ray_registry import bind_address
from layercast.offered import fetch_in_parts, offered_in_time
from layercast.publisher import Publisher
from verl.checkpoint_engine import CheckpointEngineRegistry


@CheckpointEngineRegistry.register("layercast")
class CheckpointEngine(OfOneProcess):
    """One in each worker of verl's trainer and rollouts, which make it; options are ``engine_kwargs.layercast``.

    Args:
        bucket_size: the most bytes of a version that a rollout worker holds at once, or one tensor.
        is_master: whether this is the trainer's rank 0; None in a rollout worker.
        engines: who takes each version, all or none, as :class:`layercast.Controller` takes them; rollout workers then get
            no tensors. Without, they get the version's, for whatever rollout they belong to.
        dtype: as "bfloat16": floating-point tensors are cast to it; by default they are as verl's training engine holds them.
        lineage, insecure: as :class:`layercast.Publisher` takes them. Keys are those of the environment.
        timeout: seconds that a sync may take. api_key: of engines that are vLLM servers.
    """

    wire_format = "named_tensors"

    def __init__(
        self,
        bucket_size: int,
        is_master: bool | None = None,
        *,
        engines: Iterable[str] = (),
        dtype: str = "",
        lineage: str = "policy",
        insecure: bool = False,
        timeout: float = 300.0,
        api_key: str = "",
    ) -> None:
        self._bucket_size, self._is_master, self._engines = bucket_size, bool(is_master), list(engines)
        self._dtype = getattr(torch, dtype) if dtype else None
        self._lineage, self._insecure, self._timeout, self._api_key = lineage, insecure, timeout, api_key
        self._shards = is_master is not None and os.environ.get("VERL_ENGINE_VENDOR") == "layercast"
        self._publisher: Publisher | None = None
        self._step = -1

    def prepare(self) -> dict[str, Any]:
        """Where this worker publishes, "" if it does not, and the newest step that it knows."""
        if self._publisher is None and (self._is_master or self._shards):
            keys = os.environ.get("LAYERCAST_SECRET", "") or os.environ.get("LAYERCAST_KEYS", "")
            at = bind_address(keys, self._insecure)
            self._publisher = Publisher(at, lineage=self._lineage, insecure=self._insecure)
        return {"endpoint": self._publisher.endpoint if self._publisher else "", "step": self._step}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], ...]:
        """All workers are told the same: who publishes, and after which step."""
        trainer = metadata[:actor_wg_world_size]
        publishers = [rank["endpoint"] for rank in trainer if rank["endpoint"]]
        told = {"publishers": publishers, "after": max(rank["step"] for rank in trainer)}
        sizes = (actor_wg_world_size, rollout_world_size)
        return tuple({name: [value] * size for name, value in told.items()} for size in sizes)

    def init_process_group(self, publishers: list[str], after: int) -> None:
        self._publishers, self._step = publishers, after

    def finalize(self) -> None:
        """Nothing: the version stays, for engines that join late."""

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, float]:
        """Publishes, and has the engines take it; returns metrics on rank 0. Raises what failed: rollout workers that wait
        for the version then raise too, and engines serve what they did."""
        self._step = self._next(global_steps)
        try:
            parts = self._publish_shards(weights) if self._shards else self._publish_whole(weights)
            if not self._is_master:
                return {}
            metrics = {"layercast/version": float(self._step), "layercast/publish_s": max(each for _, each in parts)}
            return metrics | await asyncio.to_thread(self._reload, [endpoint for endpoint, _ in parts])
        except BaseException:
            self.close()
            raise

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, Any]]:
        """The version's tensors on the host, in the trainer's order; none where engines take it themselves."""
        publishers, timeout = self._publishers, self._timeout
        if not self._engines:
            step = self._next(global_steps)
            found = await asyncio.to_thread(offered_in_time, publishers, lineage=self._lineage, step=step, timeout=timeout)
            parts = fetch_in_parts(publishers, found, self._bucket_size, timeout=timeout)
            while part := await asyncio.to_thread(next, parts, None):
                for named in part.items():
                    yield named

    def close(self) -> None:
        """Takes back what is published. The next sync begins anew."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def _next(self, global_steps: int | None) -> int:
        """A version's step is verl's; where verl has none, or has one again, it is one more than the latest."""
        return max(self._step + 1, -1 if global_steps is None else global_steps)

    def _publish_whole(self, weights: Iterable[tuple[str, Any]]) -> list[tuple[str, float]]:
        """To walk is a collective: every rank does it to the end, also where this one fails."""
        walk = iter(weights)
        cast = ((name, one.to(self._dtype) if self._dtype and one.is_floating_point() else one) for name, one in walk)
        try:
            part = self._publisher and self._publisher.publish(cast, step=self._step, rank=(0, 1))
        finally:
            for _ in walk:
                pass
        return [(part.endpoint, part.seconds)] if part else []

    def _publish_shards(self, module: Any) -> list[tuple[str, float]]:
        """Endpoint and seconds of all ranks that hold something, on each of them."""

        def publish() -> tuple[str, float] | None:
            if not isinstance(module, torch.nn.Module) or self._publisher is None:
                raise InvalidArgument(f"VERL_ENGINE_VENDOR=layercast: expected a module of strategy fsdp2, got {module!r:.80}")
            part = self._publisher.publish(module, step=self._step, dtype=self._dtype)
            if part is None and not self._engines:
                raise FailedPrecondition("VERL_ENGINE_VENDOR=layercast: expected every rank to hold a part, got none")
            return None if part is None else (part.endpoint, part.seconds)

        return [part for part in from_all(publish) if part is not None]

    def _reload(self, endpoints: list[str]) -> dict[str, float]:
        if not self._engines:
            return {}
        with Engines(self._engines, timeout=self._timeout, api_key=self._api_key) as engines:
            return engines.reload(endpoints, all_or_none=True) | {"layercast/engines": float(len(self._engines))}
