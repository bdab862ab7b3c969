"""How much memory a tree of processes has, sampled: private memory by process, and shared memory once.

Shared memory (/dev/shm and anonymous files) is the machine's, so that none is counted twice or overlooked; what other
programs share meanwhile is counted too.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType

_INTERVAL = 0.02  # seconds


def level(root: int) -> int:
    """Bytes that this process and its descendants have, but for memory of files on disk."""
    return sum(_field(f"/proc/{pid}/status", "RssAnon:") for pid in _tree(root)) + _field("/proc/meminfo", "Shmem:")


class Peak:
    """The highest level within a ``with``. One thread samples."""

    def __init__(self, root: int | None = None) -> None:
        self._root = os.getpid() if root is None else root
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory samples", daemon=True)
        self.before = self.highest = 0

    def __enter__(self) -> Peak:
        self.before = self.highest = level(self._root)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()
        self.highest = max(self.highest, level(self._root))

    @property
    def rise(self) -> int:
        return self.highest - self.before

    def _sample(self) -> None:
        while not self._done.wait(_INTERVAL):
            self.highest = max(self.highest, level(self._root))


def _tree(root: int) -> list[int]:
    found = [root]
    for pid in found:
        found += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                children += map(int, file.read().split())
    except OSError:
        pass  # it has just ended
    return children


def _field(path: str, name: str) -> int:
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(name):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # it has just ended
    return 0
