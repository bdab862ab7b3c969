"""The versions that publishers keep, seen from another process: listed, pinned, evicted, published from folders."""

from __future__ import annotations

import os

from layercast import _native, logs
from layercast._native import KeptVersion, Version, VersionList

__all__ = ["KeptVersion", "RemotePublisher", "VersionList"]


class RemotePublisher:
    """A publisher of another process, by its endpoint.

    Every call raises Unavailable or DeadlineExceeded, naming the publisher, and what it refuses with.
    """

    def __init__(self, endpoint: str, *, timeout: float = 300.0) -> None:
        logs.start()
        self.endpoint = endpoint
        self._native = _native.RemotePublisher(endpoint, timeout)

    def versions(self) -> VersionList:
        """What it keeps, oldest first, and evicted versions that are still read."""
        return self._native.versions()

    def pin(self, version: Version | str, pinned: bool = True) -> VersionList:
        """A version that is pinned is not evicted. Returns what is kept then.

        ``version`` may be ``"run-17@42"``, or 8 or more digits of a digest, here and below.
        """
        return self._native.pin(self._found(version), pinned)

    def evict(self, version: Version | str) -> VersionList:
        """No engine may begin to take the version any more; it is freed when nobody reads it."""
        return self._native.evict(self._found(version))

    def publish_folder(
        self,
        path: str | os.PathLike[str],
        *,
        step: int,
        lineage: str = "",
        run: str = "",
        load_format: str = "auto",
    ) -> Version:
        """Has it publish a checkpoint that it can read, and returns once the version is offered.

        The folder lies in one of the publisher's ``allow_paths``. Without ``lineage``, that of its newest version.
        """
        return self._native.publish_folder(os.path.abspath(path), load_format, lineage, step, run)

    def _found(self, version: Version | str) -> Version:
        return self.versions().named(version).version if isinstance(version, str) else version

    def __repr__(self) -> str:
        return f"RemotePublisher('{self.endpoint}')"
