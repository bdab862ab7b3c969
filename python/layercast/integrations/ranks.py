"""What the ranks of a trainer do together, on torch.distributed where it runs: a failure of one raises on all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from layercast.errors import Error, Internal


def from_all(call: Callable[[], Any]) -> list[Any]:
    """What ``call`` returned on each rank, by rank. A collective."""
    mine, failure = _outcome(call)
    found = [mine]
    if is_distributed():
        import torch.distributed as dist

        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, mine)
    return [_or_raised(outcome, failure) for outcome in found]


def from_main(call: Callable[[], Any], is_main_process: bool) -> Any:
    """What ``call`` returned on rank 0, which alone makes it. A collective."""
    mine, failure = _outcome(call) if is_main_process else (None, None)
    found = [mine]
    if is_distributed():
        import torch.distributed as dist

        dist.broadcast_object_list(found, src=0)
    return _or_raised(found[0], failure)


def this_rank() -> int:
    """0 where torch.distributed does not run."""
    import torch.distributed as dist

    return dist.get_rank() if is_distributed() else 0


def is_distributed() -> bool:
    import torch.distributed as dist

    return bool(dist.is_available() and dist.is_initialized())


def _outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What the other ranks are told, and what is raised here. What is not Layercast's they may not be able to read."""
    try:
        return call(), None
    except Error as error:
        return error, error
    except Exception as error:  # the others wait for this rank
        return Internal(f"rank {this_rank()}: {type(error).__name__}: {error}"), error


def _or_raised(outcome: Any, failure: Exception | None) -> Any:
    if failure is not None:
        raise failure
    if isinstance(outcome, Error):
        raise outcome
    return outcome
