"""Steps that all ranks of a TP group do together: one that fails fails on all.

SGLang answers an RPC with what its first rank says. Another rank's refusal would be lost, and half an engine committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from layercast.errors import Error, of_code

T = TypeVar("T")


def together(step: Callable[[], T]) -> list[T]:
    """Does a step on this rank. Returns what all ranks returned; raises the first failing rank's error on each.

    To be called on all ranks, in the same order, on their schedulers' threads.
    """
    outcomes = gathered(_outcome(step))
    for rank, (_, code, message) in enumerate(outcomes):
        if code:
            raise of_code(code)(message if len(outcomes) == 1 else f"rank {rank}: {message}")
    return [value for value, _, _ in outcomes]


def gathered(value: Any) -> list[Any]:
    """The value of each rank, by rank."""
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    if parallel.tp_size == 1:
        return [value]
    import torch.distributed

    values = [None] * parallel.tp_size
    torch.distributed.all_gather_object(values, value, group=parallel.tp_group.cpu_group)
    return values


def _outcome(step: Callable[[], Any]) -> tuple[Any, str, str]:
    try:
        return step(), "", ""
    except Error as error:
        return None, error.code, str(error)
    except Exception as error:  # noqa: BLE001  the other ranks wait for an answer
        return None, "internal", repr(error)
