"""The program ``layercast`` that the package brings, and its answers. Used by what the program already does well."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from layercast.errors import Internal, NotFound, of_code


def program() -> Path:
    """The program's path. Raises NotFound if this build of the package has none."""
    path = Path(__file__).parent / "bin" / "layercast"
    if not path.exists():
        raise NotFound(f"'{path}': this build of the package has no program")
    return path


def answer_of(*arguments: str) -> dict[str, Any]:
    """Runs a subcommand with ``--json``, and returns its answer; raises the error that it answers."""
    ran = subprocess.run([program(), *arguments, "--json"], capture_output=True, text=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise Internal(f"layercast {arguments[0]} ended with {ran.returncode}: {ran.stderr.strip()}") from None
    error = answer.get("error")
    if error:
        raise of_code(error["code"])(error["message"])
    return answer
