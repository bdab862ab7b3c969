"""The program ``layercast``, as ``python -m layercast`` and as the wheel's command."""

from __future__ import annotations

import os
import sys

from layercast.program import program


def main() -> None:
    """Becomes the program, with this process's arguments."""
    path = program()
    os.execv(path, [path.name, *sys.argv[1:]])


if __name__ == "__main__":
    main()
