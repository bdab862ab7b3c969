"""Short runs of the reinforcement-learning loop in Python: it learns what the engine samples only where it syncs."""

import pathlib
import re
import subprocess
import sys

LOOP = pathlib.Path(__file__).parents[2] / "examples/rl_loop.py"


def run(*options):
    """The rewards at last, and by update and way (reward, what was synced)."""
    done = subprocess.run([sys.executable, LOOP, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    last = re.search(r"updates: ([0-9.]+); ([0-9.]+) with", done.stdout)
    lines = re.findall(r"^(syncing|not syncing|adapter) +update +\d+  reward ([0-9.]+)  synced (.+)$", done.stdout, re.M)
    found = {way: [(float(reward), synced) for each, reward, synced in lines if each == way] for way, _, _ in lines}
    return [float(reward) for reward in last.groups()], found


def test_a_short_run_learns_only_where_it_syncs():
    (synced, unsynced), lines = run("--updates", "8")
    assert synced > 0.2 and unsynced < 0.15  # a full run passes 0.9
    rewards = [reward for reward, _ in lines["syncing"]]
    assert len(rewards) == 8 and rewards[0] < 0.15 < rewards[-1]


def test_an_adapter_alone_learns_as_well_and_is_less_to_sync():
    (whole, adapter), lines = run("--updates", "8", "--lora")
    assert whole > 0.2 and adapter > 0.2
    rewards = [reward for reward, _ in lines["adapter"]]
    assert len(rewards) == 8 and rewards[0] < 0.15 < rewards[-1]
    taken = {way: {int(re.match(r"(\d+) bytes in [0-9.]+ ms$", synced)[1]) for _, synced in of} for way, of in lines.items()}
    assert all(len(bytes) == 1 for bytes in taken.values())
    assert 0 < 4 * max(taken["adapter"]) < max(taken["syncing"])  # of a policy this small; of 8B parameters, 0.5 %


def test_the_program_is_short():
    assert len(LOOP.read_text().splitlines()) <= 130
