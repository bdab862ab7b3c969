"""How far a reload has come, as users hear of it. Used by controllers and receivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reload has come, of one engine (of a receiver: ``endpoint`` is empty)."""

    endpoint: str
    state: str
    stage: str
    bytes: int
    bytes_total: int
    layers: int
    layers_total: int


class Told:
    """What the extension calls with progress: the user's callback, and a bar."""

    def __init__(self, on_progress: Callable[[Progress], None] | None, bar: bool) -> None:
        self._on_progress = on_progress
        self._bar = _bar() if bar else None

    def __enter__(self) -> Callable[..., None] | None:
        return self._tell if self._on_progress or self._bar is not None else None

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _tell(self, *fields: Any) -> None:
        progress = Progress(*fields)
        if self._on_progress:
            self._on_progress(progress)
        if self._bar is not None:
            self._bar.total = progress.bytes_total or None
            self._bar.n = progress.bytes
            self._bar.set_postfix_str(f"{progress.stage} {progress.layers}/{progress.layers_total} layers")


def _bar() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(unit="B", unit_scale=True, desc="reload")
