"""A version that some engines have on trial, before the others take it."""

from __future__ import annotations

from typing import Any

from layercast import _native
from layercast._native import Version
from layercast.closing import OfOneProcess
from layercast.control.outcomes import EngineOutcome, checked, outcome


class Canary(OfOneProcess):
    """What :meth:`layercast.Controller.canary` returns: some engines serve ``version``, the others what they did.

    As a context manager it has the canaries go back at its end, unless :meth:`promote` was called. If this process dies,
    they go back by themselves when the trial is over.
    """

    def __init__(self, native: _native.Canary) -> None:
        self._native = native

    @property
    def version(self) -> Version:
        """What is on trial, by its digest."""
        return self._native.version

    @property
    def canaries(self) -> list[EngineOutcome]:
        """How the canaries have taken it."""
        return [outcome(native) for native in self._native.canaries]

    @property
    def others(self) -> list[str]:
        """Endpoints of the engines that serve what they did."""
        return self._native.others

    def wait(self, timeout: float) -> bool | None:
        """Waits for what others say: True for ``layercast promote``, False for ``layercast rollback --canary``, or if a
        canary is on trial no more. None: nobody has said anything within ``timeout`` seconds."""
        return self._native.wait(timeout)

    def promote(self, *, check: bool = True) -> list[EngineOutcome]:
        """The canaries keep the version, and all others take exactly that one, or none of them: then the canaries go back.

        Returns an outcome for each of the controller's engines. Raises the first failed engine's error, unless ``check``
        is False; ``error.outcomes`` has all outcomes.
        """
        outcomes = [outcome(native) for native in self._native.promote()]
        return checked(outcomes) if check else outcomes

    def roll_back(self, *, check: bool = True) -> list[EngineOutcome]:
        """The canaries serve again what they did. Returns an outcome for each of them, and raises as :meth:`promote`."""
        outcomes = [outcome(native) for native in self._native.roll_back()]
        return checked(outcomes) if check else outcomes

    def cancel(self) -> None:
        """Gives up :meth:`wait` or :meth:`promote`, from any thread; what that had begun is undone."""
        self._native.cancel()

    def close(self) -> None:
        self._native.close()

    def __exit__(self, *raised: Any) -> None:
        self.close()
