"""Short runs of QeRL's loop, to see that it runs and says what it should; what it learns takes longer (docs/noise.md)."""

import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parents[2] / "examples/qerl"


def run(out, *options):
    command = [sys.executable, FOLDER / "qerl.py", "--out", out, "--prompts", "8", "--samples", "4", "--warm-up", "20", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()], done.stdout


def test_lora_on_nvfp4_runs_with_and_without_noise_over_seeds(tmp_path):
    runs, printed = run(tmp_path, "--updates", "4", "--seeds", "2", "--train", "lora", "--recipes", "nvfp4", "--sigma", "0.1,0.01")
    assert [(each["seed"], each["noise"]) for each in runs] == [(0, "off"), (0, "on"), (1, "off"), (1, "on")]
    for each in runs:
        assert len(each["reward"]) == len(each["entropy"]) == 4
        assert set(each["seconds"]) == {"publish", "reload", "rollout", "learn"} and 0 <= each["held_out"] <= 1
        assert each["sigma"][0] == 0 and (each["sigma"][1] > each["sigma"][-1] > 0) == (each["noise"] == "on")
    off, on = runs[:2]
    assert off["entropy"][0] == on["entropy"][0]  # the first stage has no noise
    assert off["entropy"][1] != on["entropy"][1]
    assert "| lora nvfp4 noise on | 2 |" in printed and (tmp_path / "table.md").exists()


def test_the_whole_policy_runs_on_fp8(tmp_path):
    runs, _ = run(tmp_path, "--updates", "2", "--seeds", "1", "--train", "full", "--recipes", "fp8_per_channel", "--noise", "on")
    assert len(runs) == 1 and runs[0]["sigma"][-1] > 0
