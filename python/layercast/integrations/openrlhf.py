"""OpenRLHF's policy becomes a version that all its vLLM engines commit. Users have it as ``layercast.openrlhf``::

    python -m layercast.openrlhf ...   # for python -m openrlhf.cli.train_ppo_ray ..., with its own arguments

OpenRLHF has no interface for it: :func:`install` puts classes that are derived from its actors' where it looks for them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from layercast.integrations.broadcast import Broadcast
from layercast.integrations.engine_actors import EngineActors


def install(engines: Iterable[str] | None = None, **options: Any) -> None:
    """On the driver, before OpenRLHF's ``train``.

    Args:
        engines: endpoints of engines that take the policy in place of OpenRLHF's own, which are vLLM in actors of Ray.
        options: of :class:`layercast.integrations.broadcast.Broadcast`.
    """
    import ray
    from openrlhf.trainer.ray import ppo_actor, vllm_engine

    policy_of, rollouts_of = _of_actor(ppo_actor.PolicyModelActor), _of_actor(vllm_engine.RolloutRayActor)

    class PolicyModelActor(policy_of):  # type: ignore[misc, valid-type]
        def init_model_from_pretrained(self, *arguments: Any, **named: Any) -> None:
            patch_trainer(engines, **options)
            super().init_model_from_pretrained(*arguments, **named)

        def fit(self, kl_ctl: float = 0) -> Any:
            """With the metrics of the latest version, which OpenRLHF logs with its own."""
            return super().fit(kl_ctl) | self.trainer.layercast_metrics()

    class RolloutRayActor(rollouts_of):  # type: ignore[misc, valid-type]
        async def __init__(self, *arguments: Any, **named: Any) -> None:  # type: ignore[misc]
            await super().__init__(*arguments, weight_transfer_config={"backend": "layercast"}, **named)

        async def layercast(self, op: str, arguments: dict[str, Any]) -> Any:
            """A step on every rank. OpenRLHF has seen to it that no sequence, or a paused one, is under way."""
            answers = await self.llm.collective_rpc("layercast", args=(op, arguments))
            if op == "commit":
                await self.llm.reset_prefix_cache(reset_running_requests=await self.llm.is_paused())
            return answers

    ppo_actor.PolicyModelActor = ray.remote(num_gpus=1)(PolicyModelActor)
    vllm_engine.RolloutRayActor = ray.remote(RolloutRayActor) if engines is None else vllm_engine.RolloutRayActor


def patch_trainer(engines: Iterable[str] | None = None, **options: Any) -> None:
    """In a process that trains: ``ActorPPOTrainer`` publishes where it would broadcast."""
    from openrlhf.trainer.ray import ppo_actor

    def broadcast_to_vllm(trainer: Any) -> dict[str, float]:
        if not hasattr(trainer, "_layercast"):
            timeout = options.get("timeout", 300.0)
            taking = EngineActors(trainer.vllm_engines, timeout=timeout) if engines is None else engines
            trainer._layercast = Broadcast(taking, **options)
        model = trainer.actor.model.module
        if _is_held_whole(trainer.strategy.args.ds):
            return dict(trainer._layercast.held(model))
        return dict(trainer._layercast.walked(_gathered(trainer, model)))

    def layercast_metrics(trainer: Any) -> dict[str, float]:
        return dict(trainer._layercast.metrics) if hasattr(trainer, "_layercast") else {}

    ppo_actor.ActorPPOTrainer._init_vllm_sync_group = lambda trainer, backend: None
    ppo_actor.ActorPPOTrainer.broadcast_to_vllm = broadcast_to_vllm
    ppo_actor.ActorPPOTrainer.layercast_metrics = layercast_metrics


def _is_held_whole(ds: Any) -> bool:
    return bool(ds.zero_stage != 3 and ds.tensor_parallel_size <= 1)


def _gathered(trainer: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """One parameter after the other, as OpenRLHF's own broadcast gathers them; on every rank."""
    import deepspeed

    ds = trainer.strategy.args.ds
    for name, parameter in model.named_parameters():
        if ds.tensor_parallel_size > 1:
            whole = deepspeed.module_inject.layers.GatherReplacedLayerParams([parameter], model, enabled=True)
        else:
            whole = deepspeed.zero.GatheredParameters([parameter], enabled=True)
        with whole:
            yield name, parameter.data


def _of_actor(actor: Any) -> type:
    """The class that ``ray.remote`` was given."""
    return actor.__ray_metadata__.modified_class  # type: ignore[no-any-return]


if __name__ == "__main__":
    import runpy

    from layercast.integrations.openrlhf import install as install_by_name  # what actors are sent is of a module that they can import

    install_by_name()
    sys.argv[0] = "openrlhf.cli.train_ppo_ray"
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
