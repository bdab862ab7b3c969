"""The methods that SGLang's ``Scheduler`` gets, for ``Engine.collective_rpc``: one update, step by step.

SGLang calls them between two batches, on every rank, and waits for all. Arguments are plain values; what a step raises
becomes the RPC's message, and nothing else comes back: states are in ``/server_info``.
"""

from __future__ import annotations

from typing import Any

from layercast.errors import FailedPrecondition
from layercast.sglang import update
from layercast.sglang.rank import Rank, known_rank, rank_of
from layercast.sglang.refusals import refuse_pipelines, refuse_released, refuse_replicas, refuse_session
from layercast.sglang.together import together


def layercast_stage(
    self: Any, endpoint: str, lineage: str = "", step: int | None = None, timeout: float = 300.0
) -> None:
    """Starts to stage a version beside the live weights, by default the newest, and returns.

    ``endpoint``: of a publisher, or those of a trainer's ranks separated by commas. The first call, and each after
    other tensors than before, adopts the model. Raises Unavailable, NotFound, Unsupported (naming a layer).
    """
    together(lambda: _refuse(self))
    update.stage(_rank(self), endpoint, lineage, step, timeout)


def layercast_prepare(self: Any, wait: float = 0.0) -> None:
    """Raises unless the version is staged on all ranks; waits so many seconds for it, during which no batch runs."""
    together(lambda: _refuse(self))
    update.prepare(_rank(self), wait)


def layercast_commit(self: Any, flush_cache: bool = True) -> None:
    """Writes the staged version on all ranks, or on none if one refuses, and drops the caches that the old one made.

    With ``flush_cache``, raises FailedPrecondition before it writes while requests run: see pause_generation.
    """
    together(lambda: _refuse(self))
    if flush_cache:
        together(lambda: _refuse_if_busy(self))
    update.commit(_rank(self))
    if flush_cache:
        self.flush_cache()


def layercast_abort(self: Any) -> None:
    """Drops what is staged, or on its way, on all ranks."""
    together(_rank(self).abort)


def layercast_verify(self: Any) -> None:
    """Reads the served bytes of all ranks back. Raises Corrupt if they are not those that were staged."""
    together(lambda: refuse_released(self))
    together(_rank(self).verify)


def layercast_state(self: Any) -> dict[str, Any]:
    """This rank's state, for callers in its process; others read ``/server_info``."""
    rank = known_rank(_model(self))
    return rank.status() if rank is not None else {"state": "idle", "version": None}


METHODS = (layercast_stage, layercast_prepare, layercast_commit, layercast_abort, layercast_verify, layercast_state)


def states(scheduler: Any) -> dict[str, Any]:
    """What ``/server_info`` says: of the rank that answers, which is the first of its group."""
    return layercast_state(scheduler)


def _refuse(scheduler: Any) -> None:
    refuse_pipelines()
    refuse_replicas()
    refuse_session(scheduler)
    refuse_released(scheduler)


def _refuse_if_busy(scheduler: Any) -> None:
    if not scheduler.is_fully_idle(ignore_waiting=scheduler._engine_paused):
        raise FailedPrecondition(
            "requests are running, whose caches the old weights made: expected them to end, or pause_generation with "
            "mode 'retract' or 'abort', or flush_cache=False"
        )


def _rank(scheduler: Any) -> Rank:
    return rank_of(_model(scheduler))


def _model(scheduler: Any) -> Any:
    return scheduler.tp_worker.model_runner.weight_updater.get_model()
