#!/usr/bin/env python3
"""What a small sync costs, part by part, beside the bare limit: a blocking REQ and REP between two processes.

    PYTHONPATH=build/release/python .venv/bin/python bench/sync_floor.py [SYNCS] 2> /dev/null

The engine is `layercast serve` (its ranks are processes), the publisher and the controller are in this process. A sync
is timed from the call of publish until the controller has every rank's word that it has committed. Its parts:

    publish   the call of publish (of a stream: nothing is copied yet)
    connect   a rank's link to the publisher: hello, manifest, the channel
    plan      where the layout is new
    receive   waiting for chunks and tensors
    verify    digests, and reading the served bytes back
    process   layer_buffer, materialize, fuse_and_shard and quantize together
    commit    finished tensors to the staged copy, and that into place
    engine    the rest of the engine's own total: rounds between its parent and its ranks, and their threads
    call      the controller's call beyond the engine's total

Medians of later syncs, and the first one, in milliseconds; of stages that of the rank that took longest. The limit is
taken before and after each row.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import layercast
import torch
from layercast.integrations.served import ServedEngine
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples/checkpoint_flip/multiply"
PROCESS = ("layer_buffer", "materialize", "fuse_and_shard", "quantize")
PARTS = ("publish", "connect", "plan", "receive", "verify", "process", "commit", "engine", "call")


def limit() -> float:
    return float(subprocess.check_output([ROOT / "build/release/bench/round_trip"]))


def parts(publish: float, reload: float, report: Any) -> dict[str, float]:
    stages = dict(report.stage_ms)
    found = {name: stages.pop(name, 0.0) for name in ("connect", "plan", "receive", "verify", "commit")}
    found["process"] = sum(stages.pop(name, 0.0) for name in PROCESS)
    found |= {f"stage '{name}'": value for name, value in stages.items()}
    found["engine"] = report.total_ms - sum(found.values())
    return found | {"publish": publish, "call": reload - report.total_ms, "total": publish + reload}


def measure(tp: int, stream: bool, channel: str, syncs: int) -> tuple[dict[str, float], dict[str, float]]:
    weights = list(load_file(MODEL / "model.safetensors").items())
    found = []
    options = ["--tp", str(tp), "--quantization", "fp8_per_channel", "--bind", "tcp://127.0.0.1:0"]
    with ServedEngine(str(MODEL), options) as engine, layercast.Controller(engine.endpoint) as controller:
        with layercast.Publisher() as publisher:
            for step in range(1, syncs + 2):
                began = time.perf_counter()
                published = publisher.publish(weights, step=step, stream=stream)
                between = time.perf_counter()
                (outcome,) = controller.reload(published, channel=channel)
                ended = time.perf_counter()
                found.append(parts((between - began) * 1e3, (ended - between) * 1e3, outcome.report))
    later = {name: statistics.median(sync.get(name, 0.0) for sync in found[1:]) for name in found[-1]}
    return found[0], later


def main() -> None:
    syncs = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    torch.set_num_threads(1)
    print(f"{'':24}{'total':>8}" + "".join(f"{name:>9}" for name in PARTS) + f"{'limit':>8}{'trips':>7}{'first':>8}")
    for tp in (1, 2):
        for stream in (False, True):
            for channel in ("shm", "zmq"):
                before = limit()
                first, later = measure(tp, stream, channel, syncs)
                bare = (before + limit()) / 2
                row = f"tp {tp} {'stream' if stream else 'snapshot':9}{channel}"
                print(f"{row:24}{later['total']:8.2f}" + "".join(f"{later.get(name, 0.0):9.2f}" for name in PARTS)
                      + f"{bare:8.3f}{later['total'] / bare:7.1f}{first['total']:8.1f}")


main()
