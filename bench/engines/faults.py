"""Test only: a general plug-in that makes one rank of a vLLM fail in one phase of a sync. Never part of Layercast.

The environment says which: LAYERCAST_BENCH_FAULT is "<phase>:<rank>:<raise|raise-once|kill>", and the fault strikes
while the file LAYERCAST_BENCH_ARMED is there. Without them nothing is wrapped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAULT, ARMED = "LAYERCAST_BENCH_FAULT", "LAYERCAST_BENCH_ARMED"
_TENSORS_BEFORE = 10  # how many tensors a rank takes before it fails in update_weights


def register() -> None:
    """vLLM's entry point; may be called again."""
    if FAULT not in os.environ:
        return
    phase = os.environ[FAULT].split(":")[0]
    if phase == "update_weights":
        from worker_ways import GlooEngine

        _wrap(GlooEngine, "take", _TENSORS_BEFORE)
    else:
        from layercast import Receiver

        _wrap(Receiver, phase, 0)


def _wrap(kind: type, method: str, calls_before: int) -> None:
    original: Callable[..., Any] = getattr(kind, method)
    if hasattr(original, "strikes"):
        return
    calls = 0

    def striking(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        if Path(os.environ[ARMED]).exists():
            calls += 1
            if calls > calls_before:
                _strike()
        return original(self, *arguments, **options)

    striking.strikes = True  # type: ignore[attr-defined]
    setattr(kind, method, striking)


def _strike() -> None:
    import torch.distributed as dist

    phase, rank, fault = os.environ[FAULT].split(":")
    if dist.get_rank() != int(rank):
        return
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "raise-once":
        Path(os.environ[ARMED]).unlink()
    raise RuntimeError(f"a fault of the bench, in {phase} of rank {rank}")
