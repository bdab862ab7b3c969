"""Runs a child of the benches within a deadline; afterwards nothing of its group of processes is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import environment


def end_on_sigterm() -> None:
    """Children and folders are to go with a parent that is told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def run(arguments: list[str], env: dict[str, str], log: Path, seconds: float) -> int | None:
    """``arguments``: a program of this folder, and what it gets. Its exit code; None if the deadline passed."""
    command = [sys.executable, str(environment.HERE / arguments[0]), *arguments[1:]]
    with open(log, "w") as file:
        child = subprocess.Popen(command, env=env, stdout=file, stderr=file, start_new_session=True)
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            Path(f"/dev/shm/layercast-bench-{child.pid}").unlink(missing_ok=True)
