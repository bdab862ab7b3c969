"""What the ranks of a trainer that runs under accelerate do together: a failure of one raises on all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from layercast.errors import Error


def from_all(call: Callable[[], Any]) -> list[Any]:
    """What ``call`` returned on each rank, by rank. A collective."""
    from accelerate.utils import gather_object

    found = list(gather_object([_outcome(call)]))
    for outcome in found:
        if isinstance(outcome, Error):
            raise outcome
    return found


def from_main(call: Callable[[], Any], is_main_process: bool) -> Any:
    """What ``call`` returned on the main process, which alone makes it. A collective."""
    from accelerate.utils import broadcast_object_list

    found = [_outcome(call) if is_main_process else None]
    broadcast_object_list(found, from_process=0)
    if isinstance(found[0], Error):
        raise found[0]
    return found[0]


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Error as error:
        return error
