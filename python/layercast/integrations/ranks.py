"""What the ranks of a trainer do together, on torch.distributed where it runs: a failure of one raises on all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from layercast.errors import Error


def from_all(call: Callable[[], Any]) -> list[Any]:
    """What ``call`` returned on each rank, by rank. A collective."""
    mine = _outcome(call)
    found = [mine]
    if is_distributed():
        import torch.distributed as dist

        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, mine)
    for outcome in found:
        if isinstance(outcome, Error):
            raise outcome
    return found


def from_main(call: Callable[[], Any], is_main_process: bool) -> Any:
    """What ``call`` returned on rank 0, which alone makes it. A collective."""
    found = [_outcome(call) if is_main_process else None]
    if is_distributed():
        import torch.distributed as dist

        dist.broadcast_object_list(found, src=0)
    if isinstance(found[0], Error):
        raise found[0]
    return found[0]


def this_rank() -> int:
    """0 where torch.distributed does not run."""
    import torch.distributed as dist

    return dist.get_rank() if is_distributed() else 0


def is_distributed() -> bool:
    import torch.distributed as dist

    return bool(dist.is_available() and dist.is_initialized())


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Error as error:
        return error
