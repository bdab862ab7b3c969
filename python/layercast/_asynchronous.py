"""Calls that wait, for asyncio: each on a thread of its own. Used by publishers, receivers and controllers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from layercast.errors import Error

T = TypeVar("T")


async def in_thread(call: Callable[[], T], cancel: Callable[[], object] | None = None) -> T:
    """What ``call`` returns. If the task is cancelled, ``cancel`` makes the call end, and the task ends with it."""
    import asyncio

    under_way = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        while not under_way.done():  # the call may not have begun yet, and then there is nothing to cancel
            if cancel is not None:
                with contextlib.suppress(Error):  # it was closed, say: then the call ends by itself
                    cancel()
            await asyncio.wait([under_way], timeout=0.05)
        if not under_way.cancelled():
            under_way.exception()  # of a call that was given up: nobody asks for it any more
        raise
