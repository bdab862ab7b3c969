"""When SGLang's weights must not be written: each case is refused by its name, before anything is."""

from __future__ import annotations

from typing import Any

from layercast.errors import FailedPrecondition, Unsupported


def refuse_shared_or_derived(model: Any) -> None:
    """SGLang's own two refusals, which lie on none of the ways that Layercast takes.

    Raises Unsupported: the weights belong to a weight cache's daemon; caches derived from weights would go stale.
    """
    from sglang.srt.model_executor.model_runner_components import weight_updater

    try:
        weight_updater.WeightUpdater._assert_weight_cache_inactive(None, "layercast")
    except RuntimeError as why:
        raise Unsupported(str(why)) from why
    why_not = weight_updater._unsupported_derived_weight_cache_error(model)
    if why_not is not None:
        raise Unsupported(why_not)


def refuse_released(scheduler: Any) -> None:
    """Raises FailedPrecondition while the memory saver has unmapped the weights: a write would end the process."""
    if "weights" in scheduler.weight_updater.offload_tags:
        raise FailedPrecondition(
            "the memory of 'weights' is released: expected resume_memory_occupation(tags=['weights']) before an update"
        )


def refuse_pipelines() -> None:
    """Raises Unsupported with stages of a pipeline: ranks vote within a TP group, and could not commit together."""
    from sglang.srt.runtime_context import get_parallel

    size = get_parallel().pp_size
    if size != 1:
        raise Unsupported(f"expected pp_size 1, got {size}: stages of a pipeline cannot commit together yet")


def refuse_replicas() -> None:
    """Raises Unsupported with data parallelism: SGLang hands an RPC to one of the replicas, in turn."""
    from sglang.srt.runtime_context import get_parallel

    size = get_parallel().dp_size
    if size != 1:
        raise Unsupported(
            f"expected dp_size 1, got {size}: collective_rpc reaches one replica; update_weights_from_tensor with "
            "Layercast's custom loader reaches all"
        )


def refuse_session(scheduler: Any) -> None:
    """Raises FailedPrecondition inside begin_weight_update and end_weight_update, which quantize all layers again."""
    if scheduler.weight_updater._session is not None:
        raise FailedPrecondition("a weight-update session is open: expected end_weight_update() first")
