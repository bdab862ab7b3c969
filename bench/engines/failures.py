"""What becomes of a vLLM of two ranks when one of them fails within a sync: vLLM's own way, and Layercast's.

    PYTHONPATH=build/release/python <vLLM's Python> bench/engines/failures.py

Each combination is a process of its own with a deadline. Four answers are asked for after the failure, whatever the
sync has raised, and with Layercast one whenever the ranks were asked whether they have staged. *old*, *new*: the answer
of a version; *mixed*: of neither; *refused*: an error came back; *lost*: nothing did.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import environment
import faults
import shapes
from children import end_on_sigterm, run

_HEAD = ("way", "phase", "fault of rank 1", "the sync", "old", "new", "mixed", "refused", "lost", "the next sync")
CASES = [
    ("vllm", "update_weights", "raise"),
    ("vllm", "update_weights", "kill"),
    ("layercast", "stage", "raise"),
    ("layercast", "stage", "kill"),
    ("layercast", "prepare", "raise"),
    ("layercast", "prepare", "kill"),
    ("layercast", "commit", "raise-once"),
    ("layercast", "commit", "raise"),
    ("layercast", "commit", "kill"),
]


def _measure(side: str, phase: str, fault: str, checkpoint: Path, folder: Path, deadline: float) -> dict[str, Any]:
    folder.mkdir()
    more = {faults.FAULT: f"{phase}:1:{fault}", faults.ARMED: str(folder / "armed")}
    plugins = {"layercast_bench": "worker_ways:register", "layercast_bench_faults": "faults:register"}
    arguments = ["failure_case.py", side, str(checkpoint), str(folder), str(deadline)]
    code = run(arguments, environment.of_vllm(folder / "plugins", 1, plugins, **more), folder / "log", deadline)
    result = folder / "result.json"
    if code != 0:
        print((folder / "log").read_text(), file=sys.stderr)
    if not result.exists():
        return {"sync": "not run: the syncs before it failed"}
    seen: dict[str, Any] = json.loads(result.read_text())
    return seen


def _row(side: str, phase: str, fault: str, seen: dict[str, Any]) -> str:
    counts = [seen.get(name, 0) for name in ("old", "new", "mixed", "refused")]
    lost = seen.get("asked", 0) - sum(counts)
    cells = [side, phase, fault, seen["sync"], *counts, lost, seen.get("next", "–")]
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def main() -> None:
    end_on_sigterm()
    parser = argparse.ArgumentParser(prog="bench/engines/failures.py", description=__doc__.splitlines()[0])
    parser.add_argument("--deadline", type=float, default=150.0, help="seconds for each child, its start included")
    parser.add_argument("--only", nargs="+", default=[], help="phases, or phase:fault")
    options = parser.parse_args()
    print(f"| {' | '.join(_HEAD)} |\n|{' --- |' * len(_HEAD)}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint = Path(temporary) / "checkpoint"
        shapes.save("small", checkpoint)
        for number, (side, phase, fault) in enumerate(CASES):
            if not options.only or phase in options.only or f"{phase}:{fault}" in options.only:
                folder = Path(temporary) / str(number)
                seen = _measure(side, phase, fault, checkpoint, folder, options.deadline)
                print(_row(side, phase, fault, seen), flush=True)


if __name__ == "__main__":
    main()
