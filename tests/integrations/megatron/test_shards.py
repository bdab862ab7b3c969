"""Megatron-core's own modules on ranks of gloo: its forward pass gives the logits that transformers gives, so the weights lie
there as Megatron means them; and an engine that takes what all ranks publish serves the checkpoint, byte for byte."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import layercast
import pytest
import torch
from layercast.dtypes import torch_dtype
from transformers import AutoModelForCausalLM

CASE = pathlib.Path(__file__).with_name("ranks_case.py")
TOKENS = torch.tensor([[3, 11, 4, 100, 77, 8]])


@contextlib.contextmanager
def ranks(count, folder, *layout):
    """The lines that the ranks print. They end with the context."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, CASE, folder, *layout]
    process = subprocess.Popen([*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        lines = []
        while len(lines) < count:
            line = process.stdout.readline()
            assert line, f"the ranks ended with status {process.wait()}"
            lines += [json.loads(line)] if line.startswith('{"rank"') else []
        yield sorted(lines, key=lambda line: line["rank"])
        process.communicate(timeout=60)
    finally:
        process.kill()


def test_megatrons_forward_pass_gives_transformers_logits(folder_of):
    folder = folder_of("qwen3")
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(TOKENS).logits[0]
    with ranks(2, folder, 2, 1, 1, "forward") as lines:
        for line in lines:
            logits = torch.tensor(line["logits"])[:, : expected.shape[1]]  # without what pads the vocabulary
            assert (logits - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize(("family", "tp", "pp", "ep"), [("qwen3", 2, 2, 1), ("qwen3", 1, 2, 1), ("qwen3_moe", 2, 2, 2)])
def test_an_engine_serves_what_all_ranks_publish(family, tp, pp, ep, folder_of):
    folder = folder_of(family)
    layout = {"quantization": "fp8_per_channel"}
    specs = layercast.buffer_specs(folder, **layout)
    served, cold = ({spec.name: torch.zeros(spec.shape, dtype=torch_dtype(spec.dtype)) for spec in specs} for _ in range(2))
    with ranks(4, folder, tp, pp, ep, "publish") as lines, layercast.Receiver(folder, buffers=served, **layout) as receiver:
        endpoints = [line["endpoint"] for line in lines if line["endpoint"]]
        assert len(endpoints) == tp * pp  # two data parallel ranks, where there are as many, hold the same
        receiver.reload_weights(endpoints)
    with layercast.Receiver(folder, buffers=cold, **layout) as loader:
        loader.reload_weights(folder)
    for name, tensor in cold.items():
        assert torch.equal(served[name].view(torch.uint8), tensor.view(torch.uint8)), name
