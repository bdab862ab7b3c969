"""prime-rl's checkpoint of each step becomes a version that engines commit. Users have it as ``layercast.prime_rl``::

    LAYERCAST_ENGINES=tcp://127.0.0.1:7800 torchrun ... -m layercast.prime_rl @ train.toml

for ``-m prime_rl.trainer.rl.train``, with ``weight_broadcast.type = "filesystem"``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from layercast.errors import InvalidArgument, Unsupported
from layercast.integrations.broadcast import Broadcast, engines_of_run


def install(engines: Iterable[str] | None = None, **options: Any) -> None:
    """In each process that trains, before prime-rl's trainer is imported.

    Args:
        engines: endpoints; by default those of ``LAYERCAST_ENGINES``.
        options: of :class:`layercast.integrations.broadcast.Broadcast`.
    """
    from prime_rl.transports import weights

    theirs, endpoints = weights.setup_weight_broadcast, engines_of_run(engines)

    @functools.wraps(theirs)
    def setup_weight_broadcast(output_dir: Any, config: Any, *arguments: Any, **named: Any) -> Any:
        if config.type != "filesystem":
            raise InvalidArgument(f"weight_broadcast.type: expected 'filesystem', got '{config.type}'")
        made = theirs(output_dir, config, *arguments, **named)
        if made.lora_config is not None:
            raise Unsupported("lora: prime-rl writes the adapter alone, and engines take whole checkpoints")
        made.layercast = Broadcast(endpoints, **options)
        made.broadcast_weights = functools.partial(_broadcast_weights, made, made.broadcast_weights)
        return made

    weights.setup_weight_broadcast = setup_weight_broadcast


def _broadcast_weights(made: Any, theirs: Any, model: Any, step: int) -> dict[str, float]:
    """prime-rl's own writes the folder and tells its servers; then engines take it. Returns what that took."""
    from prime_rl.utils.utils import get_broadcast_dir, get_step_path

    theirs(model, step)
    metrics: dict[str, float] = made.layercast.folder(get_step_path(get_broadcast_dir(made.output_dir), step), step=step)
    made.logger.info(f"step {step}: engines serve it; {metrics}")
    return metrics


if __name__ == "__main__":
    import runpy

    from layercast.integrations.prime_rl import install as install_by_name

    install_by_name()
    runpy.run_module("prime_rl.trainer.rl.train", run_name="__main__")
