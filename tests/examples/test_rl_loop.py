"""A short run of the reinforcement-learning loop: it syncs every step, and its report says what happened."""

import json
import os
import pathlib
import re
import subprocess

import pytest

PROGRAM = pathlib.Path(os.environ["LAYERCAST_PROGRAMS"]) / "rl_loop"


def run(out, *options):
    done = subprocess.run([PROGRAM, "--out", out, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out / "report.json").read_text()), done.stdout


@pytest.fixture(scope="module")
def with_adapter(tmp_path_factory):
    return run(tmp_path_factory.mktemp("out"), "--updates", "8", "--lora")


def test_a_short_run_learns_what_the_engine_samples_only_where_it_syncs(with_adapter):
    report, _ = with_adapter
    assert report["steps"] == 8
    assert report["reward_first"] < 0.15
    assert report["reward_last"] > 0.2  # a full run passes 0.9
    assert report["reward_last_without_sync"] < 0.15
    assert report["sync"]["count"] == 9
    assert report["sync"]["bytes"] > 0
    assert report["sync"]["total_ms"] > 0
    assert len(report["history"]) == 9


def test_an_adapter_alone_learns_as_well_and_is_less_to_sync(with_adapter):
    report, said = with_adapter
    assert report["reward_last_with_adapter"] > 0.2
    assert report["history_with_adapter"][0]["held_out_reward"] < 0.15  # as untrained as the base below it
    assert report["adapter_sync"]["count"] == len(report["history_with_adapter"]) == 9
    assert report["adapter_sync"]["total_ms"] > 0
    assert 0 < 2 * report["adapter_sync"]["bytes"] < report["sync"]["bytes"]  # of a policy this small; of 8B parameters, 0.5 %
    lines = {what: int(bytes) for what, bytes in re.findall(r"^(all weights|the adapter) +(\d+) +[0-9.]+ +[0-9.]+$", said, re.M)}
    assert lines == {"all weights": report["sync"]["bytes"], "the adapter": report["adapter_sync"]["bytes"]}


def test_without_the_flag_no_adapter_is_trained(tmp_path):
    report, said = run(tmp_path, "--updates", "1")
    assert not [key for key in report if "adapter" in key] and "adapter" not in said


def test_a_flag_that_it_does_not_have_is_wrong_usage():
    done = subprocess.run([PROGRAM, "--stepz", "1"], capture_output=True, text=True)
    assert done.returncode == 2 and "--stepz" in done.stderr
