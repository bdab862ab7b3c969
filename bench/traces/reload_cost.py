#!/usr/bin/env python3
"""What a timeline costs a whole reload between processes: `reload(trace=...)` beside the same without, in turns.

    PYTHONPATH=build/release/python .venv/bin/python bench/traces/reload_cost.py [TURNS] 2> /dev/null

An engine of two ranks (`layercast serve`) takes a model of 0.4 GB from a publisher in this process, over `shm`. The call is
timed as its caller sees it: with the spans of all processes asked for, put together and written. `again` is a second call
without, of the same turn: how far two like calls are apart here. Medians, and medians of a turn's ratios.
"""

import itertools
import pathlib
import statistics
import sys
import tempfile
import time

import layercast
import torch
from layercast.integrations.served import ServedEngine
from transformers import LlamaConfig, LlamaForCausalLM


def policy() -> LlamaForCausalLM:
    config = LlamaConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=10, num_attention_heads=16, num_key_value_heads=4,
                         vocab_size=16_384, tie_word_embeddings=True)
    return LlamaForCausalLM(config).to(torch.bfloat16)


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    torch.set_num_threads(1)
    steps = itertools.count(1)
    took: dict[str, list[float]] = {"without": [], "again": [], "with": []}
    with tempfile.TemporaryDirectory() as scratch:
        model = policy()
        folder, file = pathlib.Path(scratch) / "model", pathlib.Path(scratch) / "sync.json"
        model.save_pretrained(folder)
        options = ["--tp", "2", "--quantization", "fp8_per_channel", "--bind", "tcp://127.0.0.1:0"]
        with (ServedEngine(str(folder), options) as engine, layercast.Controller(engine.endpoint) as controller,
              layercast.Publisher() as publisher):
            for turn in range(-1, turns):
                for name in ("without", *(("again", "with") if turn % 2 else ("with", "again"))):
                    published = publisher.publish(model, step=next(steps))
                    began = time.perf_counter()
                    controller.reload(published, channel="shm", trace=file if name == "with" else "")
                    if turn >= 0:
                        took[name].append(1e3 * (time.perf_counter() - began))
        size = file.stat().st_size
    for name, times in took.items():
        ratios = [one / bare for one, bare in zip(times, took["without"], strict=True)]
        print(f"{name:8}{statistics.median(times):8.1f} ms  ratio {statistics.median(ratios):.3f}")
    print(f"the file has {size} bytes")


main()
