"""The program ``layercast``, as ``python -m layercast`` and as the wheel's command."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Becomes the program, with this process's arguments."""
    program = Path(__file__).parent / "bin" / "layercast"
    os.execv(program, [program.name, *sys.argv[1:]])


if __name__ == "__main__":
    main()
