"""Layercast beside vLLM's own reloads, in one run and one tree of processes, in turn.

    PYTHONPATH=build/release/python <vLLM's Python> bench/engines --model-size 0.6b --rounds 3

Each combination of model, recipe and ranks is one engine in a process of its own. Nothing is asserted on time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import environment
import shapes
import table
from children import end_on_sigterm, run

_RECIPES = ("none", "fp8_per_tensor", "fp8_per_channel")
_CASE_SECONDS = 1500


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/engines", description=__doc__.splitlines()[0])
    parser.add_argument("--model-size", choices=("small", "0.6b"), default="small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--recipes", nargs="+", choices=_RECIPES, default=list(_RECIPES))
    parser.add_argument("--no-moe", action="store_true", help="leaves out the model of experts")
    return parser.parse_args()


def _measure(case: dict[str, Any], checkpoint: Path, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    env = environment.of_vllm(folder / "plugins", case["threads"], {"layercast_bench": "worker_ways:register"})
    code = run(["case.py", json.dumps(case), str(checkpoint), str(folder)], env, folder / "log", _CASE_SECONDS)
    result = folder / "result.json"
    if not result.exists():
        return {"error": f"no end after {_CASE_SECONDS} s" if code is None else f"ended with {code}"}
    measured: dict[str, Any] = json.loads(result.read_text())
    if "error" in measured:
        log = (folder / "log").read_text()
        print(log, file=sys.stderr)
        measured["error"] = _first_error(log) or measured["error"]
    return measured


def _first_error(log: str) -> str:
    """What the first process said that failed: the others say that it did."""
    found = re.search(r"^(?:\(.*?\) .*? )?(\w*Error: .*)$", log, re.MULTILINE)
    return found.group(1) if found else ""


def _cases(options: argparse.Namespace) -> list[dict[str, Any]]:
    models = [options.model_size]
    if not options.no_moe:
        models.append("small-moe" if options.model_size == "small" else "moe")
    cores = len(os.sched_getaffinity(0))
    return [
        {"model": model, "recipe": recipe, "ranks": ranks, "rounds": options.rounds, "threads": max(1, cores // ranks)}
        for model in models
        for ranks in options.ranks
        for recipe in options.recipes
    ]


def main() -> None:
    end_on_sigterm()
    options = _options()
    cases = _cases(options)
    print(table.about({case["ranks"]: case["threads"] for case in cases}, options.rounds), flush=True)
    print(f"\n{table.head()}", flush=True)
    done: list[tuple[dict[str, Any], dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number, case in enumerate(cases):
            if any("error" in measured for before, measured in done if before["model"] == case["model"]):
                continue  # what this machine cannot run with one recipe it cannot with another
            checkpoint = folder / case["model"]
            if not checkpoint.exists():
                shapes.save(case["model"], checkpoint)
            measured = _measure(case, checkpoint, folder / str(number))
            print(table.rows(case, measured), flush=True)
            done.append((case, measured))
    print(f"\n{table.notes(done)}")


if __name__ == "__main__":
    main()
