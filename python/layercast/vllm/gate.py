"""Holds requests at the API server's door while an engine's weights change, so that none is refused and none is mixed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from layercast.errors import DeadlineExceeded

Scope = dict[str, Any]
_Application = Callable[[Scope, Any, Any], Awaitable[None]]

# What never reaches the engine's weights, and must be answered while they change.
_FREE = ("/layercast", "/health", "/metrics", "/ping", "/version", "/load", "/docs", "/openapi.json")


class Gate:
    """Counts the requests that are under way, and lets new ones wait while it is closed. Of one event loop."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._under_way = 0

    def wrap(self, application: _Application) -> _Application:
        """ASGI middleware."""

        async def gated(scope: Scope, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or scope["path"].startswith(_FREE):
                return await application(scope, receive, send)
            await self._open.wait()
            self._under_way += 1
            self._idle.clear()
            try:
                await application(scope, receive, send)
            finally:
                self._under_way -= 1
                if self._under_way == 0:
                    self._idle.set()

        return gated

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    async def idle(self, timeout: float) -> None:
        """Waits until no request is under way. Raises DeadlineExceeded."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            raise DeadlineExceeded(f"{self._under_way} requests are still under way after {timeout:g} s") from None
