"""Waiting for an engine that starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from layercast.errors import DeadlineExceeded, Unavailable

_BETWEEN_ASKING = 0.1  # seconds


def wait_until_ready(endpoint: str, status: Callable[[], dict[str, Any]], deadline: float) -> None:
    """Asks again until the engine serves a version; ``deadline`` is of ``time.monotonic()``, and of the last question."""
    while (state := _state_without_version(status)) is not None:
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(f"engine {endpoint}: expected a version in time, got none: {state}")
        time.sleep(_BETWEEN_ASKING)


def _state_without_version(status: Callable[[], dict[str, Any]]) -> str | None:
    try:
        answer = status()
    except (DeadlineExceeded, Unavailable) as error:  # it is not there yet
        return str(error)
    return None if answer["version"] is not None else str(answer.get("state", "it has none"))
