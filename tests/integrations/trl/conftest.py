"""What the tests against TRL's wheel share: a toy policy, and engines that serve it in FP8."""

import json
import os
import pathlib
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import pytest  # noqa: E402
import torch  # noqa: E402
import toy  # noqa: E402
from layercast.program import program  # noqa: E402

torch.set_num_threads(1)  # matrices this small gain nothing from more


@pytest.fixture
def folder(tmp_path):
    """The toy policy as a trainer and an engine load it."""
    toy.policy().save_pretrained(tmp_path / "policy")
    toy.tokenizer().save_pretrained(tmp_path / "policy")
    return tmp_path / "policy"


@pytest.fixture
def serve(folder):
    """serve(options...) -> (endpoint, process) of an engine with FP8 weights."""
    started = []

    def start(*options):
        command = [program(), "serve", "--model", folder, "--quantization", "fp8_per_channel", "--allow-path", "/", "--json", *options]
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return json.loads(process.stdout.readline())["endpoint"], process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def torchrun():
    """torchrun(case, arguments...) -> what its two ranks print, by rank."""

    def run(case, *arguments):
        script = pathlib.Path(__file__).with_name(case)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
        ran = subprocess.run([*map(str, [*command, *arguments])], capture_output=True, text=True, timeout=300,
                             env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert ran.returncode == 0, ran.stderr[-4000:]
        lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"rank"')]
        return sorted(lines, key=lambda line: line["rank"])

    return run
