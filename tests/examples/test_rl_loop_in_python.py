"""A short run of the reinforcement-learning loop in Python: it learns what the engine samples only where it syncs."""

import pathlib
import re
import subprocess
import sys

LOOP = pathlib.Path(__file__).parents[2] / "examples/rl_loop.py"


def test_a_short_run_learns_only_where_it_syncs():
    done = subprocess.run([sys.executable, LOOP, "--updates", "8"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    synced, unsynced = map(float, re.search(r"updates: ([0-9.]+); ([0-9.]+) without", done.stdout).groups())
    assert synced > 0.2 and unsynced < 0.15  # a full run passes 0.9
    rewards = [float(reward) for reward in re.findall(r"^syncing +update +\d+  reward ([0-9.]+)$", done.stdout, re.M)]
    assert len(rewards) == 8 and rewards[0] < 0.15 < rewards[-1]


def test_the_program_is_short():
    assert len(LOOP.read_text().splitlines()) < 120
