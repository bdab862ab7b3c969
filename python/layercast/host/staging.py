"""A version on its way into a rank's receivers, on a thread of its own, while the engine goes on generating."""

from __future__ import annotations

import threading
from typing import Any

from layercast._native import Version
from layercast.errors import Error, FailedPrecondition, Internal
from layercast.host.receivers import Receivers


class Staging:
    """``state`` is ``idle``, ``staging``, ``staged`` or ``failed``, and ``error`` what it failed with. Every call is made
    on the engine's thread; only these two are set by the other one."""

    def __init__(self) -> None:
        self.state = "idle"
        self.error: Error | None = None
        self._thread: threading.Thread | None = None
        self._receivers: Receivers | None = None

    def start(self, receivers: Receivers, publishers: list[str], version: Version, attempt: int) -> None:
        """Returns at once. The one before must have been aborted, or be done."""
        self._receivers, self.error, self.state = receivers, None, "staging"

        def work() -> None:
            try:
                receivers.stage(publishers, lineage=version.lineage, step=version.step, attempt=attempt)
                self.state = "staged"
            except Error as error:
                self.error, self.state = error, "failed"
            except Exception as error:  # noqa: BLE001  it must reach whoever asks
                self.error, self.state = Internal(repr(error)), "failed"

        self._thread = threading.Thread(target=work, name="layercast stage", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def require_staged(self) -> Receivers:
        """The receivers that hold the version. Raises what staging raised, and FailedPrecondition without one."""
        if self.state == "failed" and self.error is not None:
            raise self.error
        if self.state != "staged" or self._receivers is None:
            raise FailedPrecondition(f"expected a version that is staged, got the state '{self.state}'")
        self.wait()
        return self._receivers

    def done(self) -> None:
        """What was staged is committed."""
        self.state = "idle"

    def abort(self) -> None:
        """Drops what is staged, or on its way."""
        if self._receivers is not None and self.state != "idle":
            if self._thread is not None and self._thread.is_alive():
                self._receivers.cancel()
            self.wait()
            self._receivers.abort()
        self._thread, self._receivers, self.error, self.state = None, None, None, "idle"

    def status(self) -> dict[str, Any]:
        error = {"code": self.error.code, "message": str(self.error)} if self.error else None
        return {"state": self.state, "error": error}


def named(version: Version | None) -> dict[str, Any] | None:
    """A version as JSON has it."""
    return {"lineage": version.lineage, "step": version.step, "digest": version.digest} if version else None
