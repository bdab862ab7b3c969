"""The program ``layercast``, as ``python -m layercast`` and as the wheel's command."""

from __future__ import annotations

import os
import sys

from layercast.http.http_commands import asks_http, run
from layercast.program import program


def main() -> None:
    """Becomes the program, with this process's arguments; asks vLLM servers itself."""
    if asks_http(sys.argv[1:]):
        sys.exit(run(sys.argv[1:]))
    path = program()
    os.execv(path, [path.name, *sys.argv[1:]])


if __name__ == "__main__":
    main()
