"""Every family under every recipe, served by an engine whose buffers are on a device: the bytes of an engine in host memory,
which test_matrix.py holds against the oracle. Run with a device that the driver plays, and with a real one."""

import os
import subprocess

import pytest
import safetensors.torch

import matrix
import oracle


@pytest.fixture(scope="module")
def load(checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("served") / "served.safetensors"

    def run(spec, recipe, *words):
        command = [os.environ["LAYERCAST_PIPELINE_DRIVER"], checkpoint(spec, "a"), 2, 1, recipe, out, "way=path", *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if "no CUDA: " in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        served = safetensors.torch.load(out.read_bytes())
        out.unlink()
        return served

    run("llama", "none", "device")  # where there is no device, once is enough
    return run


@pytest.mark.parametrize("spec, recipe", [(spec, recipe) for _, spec, recipe in matrix.ROWS])
def test_a_family_is_served_as_in_host_memory(spec, recipe, load):
    assert oracle.differences(load(spec, recipe, "device", "chunk=20000"), load(spec, recipe)) == []
