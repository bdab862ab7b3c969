"""The Markdown table of what the children measured."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from ways import LAYERCAST

# Recipes for which vLLM's own processing calls an operation that the tests' plug-in stands in for.
STAND_INS = {"fp8_per_tensor": "static_scaled_fp8_quant"}

_CORES = {1: "one", 2: "two"}
_HEAD = (
    "model",
    "recipe",
    "ranks",
    "way",
    "seconds until served",
    "of them without answers",
    "peak MB beyond the model",
    "MB on the wire, a rank",
    "bytes as vLLM's",
)


def about(threads: dict[int, int], rounds: int) -> str:
    processor = next(
        (line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    each = ", ".join(f"{count} thread{'s' * (count > 1)} with {ranks} rank{'s' * (ranks > 1)}"
                     for ranks, count in threads.items())  # fmt: skip
    cores = len(os.sched_getaffinity(0))
    load = open("/proc/loadavg").read().split()[0]
    return (
        f"{processor}, {_CORES.get(cores, cores)} CPU cores, vLLM {version('vllm')} with its fallback kernels, "
        f"torch {version('torch')}; each worker and the trainer: {each}; {rounds} rounds in turn, "
        f"median (lowest to highest); load {load} at the start."
    )


def head() -> str:
    return "\n".join([_row(_HEAD), _row(["---"] * len(_HEAD))])


def rows(case: dict[str, Any], measured: dict[str, Any]) -> str:
    """One row for each way, or one that says why there is none."""
    mark = " *" if case["recipe"] in STAND_INS else ""
    first = (f"{case['model']}, {measured['bytes'] / 1e6:.0f} MB" if "bytes" in measured else case["model"],
             case["recipe"] + mark, case["ranks"])  # fmt: skip
    if "error" in measured:
        why = measured["error"].splitlines()[0][:200]
        return _row([*first, f"not run: {why}", *["–"] * 5])
    return "\n".join(
        _row([
            *first,
            way,
            _spread(samples, "served", lambda seconds: f"{seconds:.2f}"),
            _spread(samples, "blocked", lambda seconds: f"{seconds:.3f}"),
            _spread(samples, "peak", lambda count: f"{count / 1e6:.0f}"),
            f"{samples[0]['received'] / 1e6:.0f}",
            "yes" if measured["equal"][way] else "**no**",
        ])
        for way, samples in measured["samples"].items()
    )  # fmt: skip


def notes(cases: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    lines = [
        "- Without answers: the time within calls of the update, in which an in-process `LLM` can generate nothing.",
        "- Peak: of private memory of all processes and of shared memory, counted once, above what was there with the "
        "model loaded; Layercast's includes what its receivers keep between syncs. Files on disk are not counted.",
        "- By path: the trainer writes the file, which stays in the page cache. By iterator: views of the trainer's "
        "own weights in shared memory; the trainer waits. Borrowed: Layercast takes them without a copy of its own.",
    ]  # fmt: skip
    stand_ins = sorted({STAND_INS[case["recipe"]] for case, _ in cases if case["recipe"] in STAND_INS})
    if stand_ins:
        lines.append(f"- *: vLLM's {', '.join(stand_ins)} is a stand-in of ours in torch: no goal.")
    for case, measured in cases:
        for path, why in list(measured.get("reloaded", {}).items())[:1]:
            count = len(measured["reloaded"])
            of = f"{case['model']}, {case['recipe']}, {case['ranks']}"
            lines.append(f"- {of}: {count} layers by vLLM's code ({path}: {why}).")
    for way in LAYERCAST:
        channels = sorted({measured["channels"][way] for _, measured in cases if "channels" in measured})
        lines.append(f"- {way}: over {' and '.join(channels) or 'no channel'}.")
    return "\n".join(lines)


def _spread(samples: list[dict[str, float]], name: str, text: Callable[[float], str]) -> str:
    values = [sample[name] for sample in samples]
    return f"{text(statistics.median(values))} ({text(min(values))} to {text(max(values))})"


def _row(cells: Any) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
