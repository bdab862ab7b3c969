"""What tests of the pipeline share."""

import os
import subprocess

import pytest
import safetensors.torch


@pytest.fixture
def load(tmp_path):
    """Loads a checkpoint as one rank: name -> tensor of what it serves, or what the error says."""

    def run(folder, tp, rank, recipe, *words, way="path"):
        out = tmp_path / "served.safetensors"
        command = [os.environ["LAYERCAST_PIPELINE_DRIVER"], folder, tp, rank, recipe, out, f"way={way}", "fill=165"]
        done = subprocess.run([str(word) for word in (*command, *words)], capture_output=True, text=True, check=False)
        return safetensors.torch.load_file(out) if done.returncode == 0 else done.stderr

    return run
