"""What publishers, receivers and controllers are alike in: they belong to one process, and end with a ``with``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from layercast.errors import FailedPrecondition


class OfOneProcess(ABC):
    """A context manager that is closed at its end. It cannot be pickled."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        kind = type(self).__name__.lower()
        raise FailedPrecondition(f"a {kind} is of one process, and cannot be pickled: send its endpoint, or make one there")
