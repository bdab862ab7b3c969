"""What the plug-in adds to SGLang: methods of the scheduler, a key of its internal state, and two hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from layercast.errors import Error
from layercast.sglang.scheduler import METHODS, states

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater"


def register() -> None:
    """SGLang's registry applies the hooks when all plug-ins have run. It can wrap methods, but not add any."""
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for method in METHODS:
        setattr(Scheduler, method.__name__, method)
    for target, hook, kind in (
        (f"{SCHEDULER}.get_internal_state", _with_states, HookType.AFTER),
        (f"{UPDATER}.update_weights_from_tensor", _answers_refusals, HookType.AROUND),
        (f"{UPDATER}.end_weight_update", _spares_kernel_bytes, HookType.AROUND),
    ):
        if not any(known is hook for _, known, _ in HookRegistry._hooks.get(target, ())):
            HookRegistry.register(target, hook, kind)


def ends_are_hooked() -> bool:
    """SGLang's end of a session spares what Layercast wrote."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    target = f"{UPDATER}.end_weight_update"
    hooks = HookRegistry._hooks.get(target, ())
    return target in HookRegistry._patched and any(hook is _spares_kernel_bytes for _, hook, _ in hooks)


def _with_states(result: Any, scheduler: Any, *_: Any) -> None:
    """How states get out: ``collective_rpc`` returns none, ``/server_info`` does."""
    result.internal_state["layercast"] = states(scheduler)


def _answers_refusals(original: Callable[..., Any], updater: Any, *arguments: Any, **options: Any) -> Any:
    """An exception of a custom loader ends the scheduler's process. Ours are answers: success=False."""
    try:
        return original(updater, *arguments, **options)
    except Error as error:
        return False, f"{error.code}: {error}"


def _spares_kernel_bytes(original: Callable[..., None], updater: Any, *, run_post_load: bool) -> None:
    """The end of a session would quantize kernel bytes again, into memory that CUDA graphs do not know."""
    from layercast.sglang.rank import known_rank

    rank = known_rank(updater.get_model())
    if rank is not None and rank.wrote_in_session:
        rank.wrote_in_session = False
        return
    original(updater, run_post_load=run_post_load)
