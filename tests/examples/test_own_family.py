"""A family that a host program registers in one call: it loads a checkpoint that transformers wrote for it, and serves
what an engine of a built-in family with the same layers does, which is what the oracle makes of the files.
CONTRIBUTING.md shows the program as it is."""

import json
import os
import pathlib
import subprocess

import pytest

import checkpoints
import oracle
import program as layercast_program

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = pathlib.Path(os.environ["LAYERCAST_PROGRAMS"])
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 130, "bos_token_id": None, "eos_token_id": None}


@pytest.fixture
def served_by_an_engine(tmp_path):
    """served_by_an_engine(folder) -> name -> tensor of what it serves, and the digest of that."""
    program = layercast_program.Program(PROGRAMS / "layercast", tmp_path)
    running = []

    def serve(folder):
        running.append(program.daemon("serve", "--model", folder))
        program.export(running[0], tmp_path / "export")
        return oracle.read_export(tmp_path / "export", 0), program.status(running[0])["ranks"][0]["served_digest"]

    yield serve
    for daemon in running:
        daemon.kill()


@pytest.mark.parametrize("out_bias, same_layers", [(False, "qwen2"), (True, "llama")])
def test_it_loads_what_transformers_wrote(out_bias, same_layers, served_by_an_engine, tmp_path):
    config = {**SIZES, "attention_bias": True, "attention_out_bias": out_bias}
    folder = checkpoints.make(checkpoints.Spec("seed_oss", "seed_oss", config), tmp_path, "a")
    assert oracle.read_config(folder)["architectures"] == ["SeedOssForCausalLM"]
    done = subprocess.run([PROGRAMS / "own_family", folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

    twin = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[same_layers]
    saved = oracle.read_config(folder) | {"model_type": same_layers, "architectures": [twin]}
    (folder / "config.json").write_text(json.dumps(saved))
    tensors, digest = served_by_an_engine(folder)
    assert oracle.differences(tensors, oracle.served_tensors(folder, 1, 0)) == []
    assert done.stdout.endswith(f" bytes loaded, serving {digest}\n")


def test_contributing_shows_this_very_program():
    source = (ROOT / "examples/own_family.cc").read_text()
    assert len(source.splitlines()) <= 60
    begin, end = source.index("// Like Llama"), source.index("// Allocates the engine's memory")
    shown = (ROOT / "CONTRIBUTING.md").read_text()
    assert source[begin:end].rstrip() in shown
    assert next(line for line in source.splitlines() if "registry.Register" in line) in shown
