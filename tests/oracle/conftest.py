"""What tests of the pipeline share."""

import os
import select
import subprocess

import pytest
import safetensors.torch

import quantized_forms

READY_SECONDS = 30


@pytest.fixture
def load(tmp_path):
    """Loads a checkpoint as one rank: name -> tensor of what it serves, or what the error says."""

    def run(folder, tp, rank, recipe, *words, way="path"):
        out = tmp_path / "served.safetensors"
        command = [os.environ["LAYERCAST_PIPELINE_DRIVER"], folder, tp, rank, recipe, out, f"way={way}", "fill=165"]
        done = subprocess.run([str(word) for word in (*command, *words)], capture_output=True, text=True, check=False)
        return safetensors.torch.load_file(out) if done.returncode == 0 else done.stderr

    return run


@pytest.fixture
def load_all(tmp_path):
    """The same of all ranks at once, as a publisher expects them."""

    def run(folder, tp, recipe, *words, way):
        outs = [tmp_path / f"served-{rank}.safetensors" for rank in range(tp)]
        ranks = [subprocess.Popen([str(word) for word in (os.environ["LAYERCAST_PIPELINE_DRIVER"], folder, tp, rank, recipe, out,
                                                          f"way={way}", "fill=165", *words)], stderr=subprocess.PIPE, text=True)
                 for rank, out in enumerate(outs)]
        errors = [rank.communicate()[1] for rank in ranks]
        return [safetensors.torch.load_file(out) if rank.returncode == 0 else error for rank, out, error in zip(ranks, outs, errors)]

    return run


@pytest.fixture
def made(checkpoint, tmp_path):
    """A dense checkpoint in a form of quantized_forms.FORMS."""
    return lambda form: quantized_forms.make(checkpoint("qwen3_wide", "a"), tmp_path / "checkpoint", form)


@pytest.fixture
def made_experts(checkpoint, tmp_path):
    """One of experts and latent attention."""
    return lambda form: quantized_forms.make(checkpoint("deepseek_v3_wide", "a"), tmp_path / "checkpoint", form)


@pytest.fixture
def publish():
    """publish(folder, "stream", "layer") -> the endpoint of a publisher's process, which ends with the test; with "0/3" too, of
    the first of three ranks."""
    running = []

    def start(folder, mode, order, *rank, **environment):
        command = [os.environ["LAYERCAST_PUBLISHER_DRIVER"], folder, mode, order, *rank]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, **environment})
        running.append(process)
        readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
        endpoint = process.stdout.readline().strip() if readable else ""
        assert endpoint.startswith("tcp://"), f"no endpoint; exit status {process.poll()}"
        return endpoint

    yield start
    for process in running:
        process.kill()
        process.communicate()
