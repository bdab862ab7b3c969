"""What tests of integrations share: the toy policy's folder, and engines of `layercast serve` that serve it in FP8."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "trl"))
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest  # noqa: E402
import torch  # noqa: E402
import toy  # noqa: E402
from layercast.program import program  # noqa: E402

torch.set_num_threads(1)  # matrices this small gain nothing from more


def save_policy(folder, seed=0):
    """The policy as a trainer holds it. The folder is as engines load it."""
    module = toy.policy(seed).to(torch.bfloat16)
    module.save_pretrained(folder)
    toy.tokenizer().save_pretrained(folder)
    return module


@contextlib.contextmanager
def serving(folder):
    """start(options...) -> (endpoint, process) of an engine with FP8 weights."""
    started = []

    def start(*options):
        command = [program(), "serve", "--model", folder, "--quantization", "fp8_per_channel", "--allow-path", "/", "--json", *options]
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return json.loads(process.stdout.readline())["endpoint"], process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture
def folder(tmp_path):
    """The toy policy's."""
    save_policy(tmp_path / "policy")
    return tmp_path / "policy"


@pytest.fixture
def serve(folder):
    """serve(options...) -> (endpoint, process) of an engine."""
    with serving(folder) as start:
        yield start


def torchrun(script, *arguments):
    """What two ranks print, by rank: a line of JSON each."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    ran = subprocess.run([*map(str, [*command, *arguments])], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stderr[-4000:]
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"rank"')]
    return sorted(lines, key=lambda line: line["rank"])


@contextlib.contextmanager
def one_rank(scratch):
    """torch.distributed runs, with this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{scratch}/ranks", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
