"""Holds requests at the API server's door while an engine's weights change, so that none is refused and none is mixed; and
knows when those have ended that came before something changed."""

from __future__ import annotations

import asyncio
from collections import Counter
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
        self._turn = 0
        self._under_way: Counter[int] = Counter()  # requests by the turn in which they came
        self._one_ended = asyncio.Event()

    def wrap(self, application: _Application) -> _Application:
        """ASGI middleware."""

        async def gated(scope: Scope, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or scope["path"].startswith(_FREE):
                return await application(scope, receive, send)
            await self._open.wait()
            came = self._turn
            self._under_way[came] += 1
            self._idle.clear()
            try:
                await application(scope, receive, send)
            finally:
                self._under_way[came] -= 1
                self._one_ended.set()
                if self._count() == 0:
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
            raise DeadlineExceeded(f"{self._count()} requests are still under way after {timeout:g} s") from None

    def turn(self) -> int:
        """Requests that come from now on are told from those of this turn, whose number is returned, and before."""
        self._turn += 1
        return self._turn - 1

    async def left(self, turn: int, timeout: float | None = None) -> None:
        """Waits until no request is under way that came in this turn or before. Raises DeadlineExceeded."""
        try:
            async with asyncio.timeout(timeout):
                while count := sum(self._under_way[came] for came in self._under_way if came <= turn):
                    self._one_ended.clear()
                    await self._one_ended.wait()
        except TimeoutError:
            raise DeadlineExceeded(f"{count} requests are still under way after {timeout:g} s") from None
        for came in [came for came in self._under_way if came <= turn]:
            del self._under_way[came]

    def _count(self) -> int:
        return sum(self._under_way.values())
