"""A family that a host program registers in one call: it loads a checkpoint that transformers wrote for it, and serves
what a built-in family that has the same layers would serve. CONTRIBUTING.md shows the program as it is."""

import json
import os
import pathlib
import subprocess

import pytest

import checkpoints

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(os.environ["LAYERCAST_PROGRAMS"]) / "own_family"
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 130, "bos_token_id": None, "eos_token_id": None}


def load(folder):
    done = subprocess.run([PROGRAM, folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("out_bias, same_layers", [(False, "Qwen2ForCausalLM"), (True, "LlamaForCausalLM")])
def test_it_loads_what_transformers_wrote(tmp_path, out_bias, same_layers):
    config = {**SIZES, "attention_bias": True, "attention_out_bias": out_bias}
    folder = checkpoints.make(checkpoints.Spec("seed_oss", "seed_oss", config), tmp_path, "a")
    served = load(folder)
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    assert saved["architectures"] == ["SeedOssForCausalLM"]
    path.write_text(json.dumps({**saved, "architectures": [same_layers]}))
    assert load(folder) == served


def test_contributing_shows_this_very_program():
    source = (ROOT / "examples/own_family.cc").read_text()
    assert len(source.splitlines()) < 60
    begin, end = source.index("// Like Llama"), source.index("// The engine's memory")
    shown = (ROOT / "CONTRIBUTING.md").read_text()
    assert source[begin:end].rstrip() in shown
    assert next(line for line in source.splitlines() if "registry.Register" in line) in shown
