"""A short run of the reinforcement-learning loop: it syncs every step, and its report says what happened."""

import json
import os
import pathlib
import subprocess

PROGRAM = pathlib.Path(os.environ["LAYERCAST_PROGRAMS"]) / "rl_loop"


def test_a_short_run_learns_what_the_engine_samples_only_where_it_syncs(tmp_path):
    done = subprocess.run([PROGRAM, "--out", tmp_path, "--updates", "8"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["steps"] == 8
    assert report["reward_first"] < 0.15
    assert report["reward_last"] > 0.2  # a full run passes 0.9
    assert report["reward_last_without_sync"] < 0.15
    assert report["sync"]["count"] == 9
    assert report["sync"]["bytes"] > 0
    assert report["sync"]["total_ms"] > 0
    assert len(report["history"]) == 9


def test_a_flag_that_it_does_not_have_is_wrong_usage():
    done = subprocess.run([PROGRAM, "--stepz", "1"], capture_output=True, text=True)
    assert done.returncode == 2 and "--stepz" in done.stderr
