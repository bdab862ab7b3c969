"""The exceptions of Layercast: one base, and a class for each code of the C++ library's errors.

Each is also the builtin exception that a Python programmer would catch there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layercast.control.outcomes import EngineOutcome


class Error(Exception):
    """Whatever the world can cause: a bad file, a wrong argument, a dead peer. ``code`` is its name on the wire."""

    code = "internal"
    #: Of a controller's call that failed, what each engine answered.
    outcomes: list[EngineOutcome] | None = None


class InvalidArgument(Error, ValueError):
    """The caller's argument or configuration can never work."""

    code = "invalid_argument"


class NotFound(Error, FileNotFoundError, KeyError):
    """A file, tensor, version or peer that was named does not exist."""

    code = "not_found"


class FailedPrecondition(Error, RuntimeError):
    """The right call at the wrong moment: calls out of order, a torn engine, a closed publisher."""

    code = "failed_precondition"


class Corrupt(Error, ValueError):
    """Bytes that break their format, or do not match their digest; NaN or infinity in a tensor."""

    code = "corrupt"


class Unavailable(Error, ConnectionError):
    """A peer that is gone or cannot be reached."""

    code = "unavailable"


class DeadlineExceeded(Error, TimeoutError):
    """A wait ended before its event; the message names whom it waited for."""

    code = "deadline_exceeded"


class ResourceExhausted(Error, MemoryError):
    """A declared bound would be exceeded, or memory, descriptors or threads ran out."""

    code = "resource_exhausted"


class Cancelled(Error):
    """Somebody asked for the work to stop."""

    code = "cancelled"


class PermissionDenied(Error, PermissionError):
    """The key of whoever asks is not known to the peer, or has not the role for it; or a path that is not allowed."""

    code = "permission_denied"


class Unsupported(Error, NotImplementedError):
    """Understood, but not offered by this build or peer."""

    code = "unsupported"


class Internal(Error, RuntimeError):
    """A bug in Layercast."""

    code = "internal"


_CLASSES: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        FailedPrecondition,
        Corrupt,
        Unavailable,
        DeadlineExceeded,
        ResourceExhausted,
        Cancelled,
        PermissionDenied,
        Unsupported,
        Internal,
    )
}


def of_code(code: str) -> type[Error]:
    """The class of a code; :class:`Internal` for one that this release does not know."""
    return _CLASSES.get(code, Internal)
