"""A real training publishes every step from all of its ranks, and what engines take is bit for bit what a cold load of
save_pretrained's folder gives: buffers adopted in Python, and the built-in engine, which is killed once and comes back."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("layout", "ranks"), [("plain", 1), ("fsdp", 2), ("tp", 2), ("fsdp_tp", 4)])
def test_every_step_is_served_as_a_cold_load_of_it_would_be(layout: str, ranks: int, tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    ran = subprocess.run(
        [*torchrun, str(Path(__file__).with_name("train.py")), layout, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{layout} on {ranks}: 3 steps" in ran.stdout
