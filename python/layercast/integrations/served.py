"""An engine of ``layercast serve`` as a child: it ends with the process that started it. Used by actors of Ray."""

from __future__ import annotations

import contextlib
import ctypes
import json
import select
import signal
import subprocess
import threading
from collections.abc import Sequence as AbstractSequence
from typing import Any

from layercast.closing import OfOneProcess
from layercast.errors import DeadlineExceeded, Unavailable, of_code
from layercast.program import program

_PR_SET_PDEATHSIG = 1
_GRACE = 10.0  # seconds that an engine has to end its ranks


class ServedEngine(OfOneProcess):
    """Starts an engine, and returns when it is ready; ``endpoint`` is where it is reached.

    Args:
        model: the folder of its checkpoint; ``options``: more of ``layercast serve`` (docs/cli.md).
        timeout: seconds that it has to become ready.

    Raises what the program says, DeadlineExceeded, NotFound (no program).
    """

    def __init__(self, model: str, options: AbstractSequence[str] = (), *, timeout: float = 120.0) -> None:
        self._command = [str(program()), "serve", "--model", model, "--json", *options]
        self._libc = ctypes.CDLL(None)
        started = threading.Event()
        threading.Thread(target=self._run, args=(started,), name="layercast-serve", daemon=True).start()
        started.wait()
        self.endpoint = str(self._ready(timeout)["endpoint"])

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_GRACE)
            return
        self.process.kill()
        self.process.wait()

    def _run(self, started: threading.Event) -> None:
        """The signal comes when the *thread* that started the child ends: so this one lives as long as the child."""
        try:
            self.process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, text=True, preexec_fn=self._end_with_the_parent
            )
        finally:
            started.set()
        self.process.wait()

    def _end_with_the_parent(self) -> None:
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def _ready(self, timeout: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], timeout)
        if not readable:
            self.close()
            raise DeadlineExceeded(f"'{' '.join(self._command)}' was not ready after {timeout:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise Unavailable(f"'{' '.join(self._command)}' ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if error := answer.get("error"):
            raise of_code(error["code"])(error["message"])
        return answer
