"""What engines answer to a controller's call."""

from __future__ import annotations

from dataclasses import dataclass

from layercast import _native
from layercast._native import Version
from layercast.errors import Cancelled, Error, of_code
from layercast.http.http_engines import Answered
from layercast.report import Report


@dataclass(frozen=True, slots=True)
class EngineOutcome:
    """One engine's answer to a call. ``version`` is what it serves now, also after a failure; ``given_back`` are the bytes
    that :meth:`Controller.sleep` got of it."""

    endpoint: str
    ok: bool
    version: Version | None
    previous: Version | None
    report: Report | None
    error: Error | None
    given_back: int = 0


def outcome(native: _native.EngineOutcome | Answered) -> EngineOutcome:
    report = Report(native.report_json) if native.report_json not in ("", "null") else None
    error = None if native.ok else of_code(native.code)(native.message)
    return EngineOutcome(native.endpoint, native.ok, native.version, native.previous, report, error, native.given_back)


def checked(outcomes: list[EngineOutcome]) -> list[EngineOutcome]:
    """Raises the first failed engine's error, which has all outcomes."""
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    if not failed:
        return outcomes
    failed.sort(key=lambda error: isinstance(error, Cancelled))  # engines that were told to stop come after the cause
    more = f" (and {len(failed) - 1} more of {len(outcomes)} engines failed)" if len(failed) > 1 else ""
    error = type(failed[0])(str(failed[0]) + more)
    error.outcomes = outcomes
    raise error
