"""Commands that tests of the wheel run, and the tree that they run in."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command, **options):
    """What a command prints; where it fails, all that it has said is in the test's report."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
