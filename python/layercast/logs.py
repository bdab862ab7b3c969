"""Log lines of the extension, to ``logging.getLogger("layercast")``.

A thread of this module hands them over: threads of Layercast never wait for Python to log. It is started with the first
publisher or receiver, so that importing starts none.
"""

from __future__ import annotations

import logging
import threading

from layercast import _native

_logger = logging.getLogger("layercast")
_lock = threading.Lock()
_thread: threading.Thread | None = None


def _hand_over() -> None:
    while lines := _native.take_logs():
        for level, text in lines:
            _logger.log(level, "%s", text)


def start() -> None:
    """Starts the thread, once for each process."""
    global _thread
    with _lock:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_hand_over, name="layercast-logs", daemon=True)
            _thread.start()


def stop() -> None:
    """Hands over what has come, and ends the thread."""
    if _thread is not None and _thread.is_alive():
        _native.end_logs()
        _thread.join(timeout=1)
