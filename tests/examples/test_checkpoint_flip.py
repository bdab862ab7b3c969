"""The flip example runs as a reader would run it, in every recipe."""

import os
import pathlib
import subprocess
import sys

import pytest

FLIP = pathlib.Path(__file__).parents[2] / "examples" / "checkpoint_flip" / "flip.py"
PROGRAM = pathlib.Path(os.environ["LAYERCAST_PROGRAMS"]) / "layercast"


@pytest.mark.parametrize("recipe", ["none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"])
def test_an_engine_multiplies_then_adds_then_multiplies(recipe):
    done = subprocess.run([sys.executable, FLIP, PROGRAM, recipe], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [line.split("(")[0].strip() for line in done.stdout.splitlines() if line.startswith("3 4 = ")]
    assert answers == ["3 4 = 12", "3 4 = 7", "3 4 = 12"]


def test_why_nothing_started_is_said_once():
    done = subprocess.run([sys.executable, FLIP, PROGRAM, "fp7"], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and (done.stdout + done.stderr).count("got 'fp7'") == 1
