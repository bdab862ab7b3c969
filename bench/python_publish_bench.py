#!/usr/bin/env python3
"""What publishing from Python costs beyond the C++ library, as ratios in one run.

    PYTHONPATH=build/release/python .venv/bin/python bench/python_publish_bench.py

1. Many small tensors: microseconds a tensor that publish(module) takes beyond iterating named_parameters and beyond the
   library's own publishing of as many tensors of a checkpoint file that is in the page cache.
2. Large ones: bytes a second of publish(module), as a share of what the library reaches for the same file.
The best of several turns of each, taken in turn.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import layercast
import torch
from safetensors.torch import save_file

TURNS = 7


class Layers(torch.nn.Module):
    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(count))


def best(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least seconds of each, measured in turn."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(TURNS):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            least[name] = min(least[name], time.perf_counter() - began)
    return least


def measure(count: int, width: int, folder: Path) -> dict[str, float]:
    module = Layers(count, width)
    save_file({name: parameter.detach() for name, parameter in module.named_parameters()}, folder / "model.safetensors")
    publisher = layercast.Publisher(retained_versions=1, evicted_versions=0)
    steps = iter(range(1, 1_000_000))
    with publisher:
        return best({
            "iterate": lambda: sum(1 for _ in module.named_parameters()),
            "module": lambda: publisher.publish(module, step=next(steps)),
            "library": lambda: publisher.publish(folder, step=next(steps)),
        })  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        count = 20_000
        small = {name: seconds / count * 1e6 for name, seconds in measure(count, 8, Path(folder)).items()}
        beyond = small["module"] - small["library"] - small["iterate"]
        print(f"{count} tensors of 256 bytes, us a tensor: module {small['module']:.2f}, library {small['library']:.2f}, "
              f"named_parameters {small['iterate']:.2f}; beyond both {beyond:.2f}")
        large = measure(64, 2048, Path(folder))
        print(f"64 tensors of 16 MiB: module {2**30 / large['module'] / 1e9:.2f} GB/s, "
              f"share of the library's {large['library'] / large['module']:.2f}")


main()
