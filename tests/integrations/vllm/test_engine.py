"""Whole engines of vLLM's wheel: what they serve after a sync equals, byte for byte, what vLLM's own reload leaves."""

import copy
import json
import pathlib
import subprocess
import sys

import pytest
import torch
from checkpoints import QUANTIZED, quantized
from conftest import child_environment

CASE = pathlib.Path(__file__).with_name("engine_case.py")


def run(a, b, tp, quantization, *adapter):
    command = [sys.executable, str(CASE), str(a), str(b), str(tp), quantization, *map(str, adapter)]
    ran = subprocess.run(command, env=child_environment(), capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    answers = [line for line in ran.stdout.splitlines() if line.startswith("{")]  # vLLM writes there too
    return json.loads(answers[-1])


def check(said):
    assert said["equal"] and said["changed"] and said["back"]
    assert said["b"] == said["theirs"] and said["again"] == said["a"] != said["b"]


@pytest.mark.parametrize(
    ("kind", "quantization", "tp"),
    [
        ("qwen3", "none", 1),
        ("llama", "none", 2),
        ("qwen2", "fp8_per_channel", 1),
        ("qwen3", "fp8_per_channel", 2),
        ("llama_tied", "fp8_per_tensor", 1),
        ("gemma2", "fp8_per_tensor", 2),
    ],
)
def test_a_sync_leaves_the_bytes_of_vllms_own_reload(policies, kind, quantization, tp):
    said = run(policies(kind, 1)[1], policies(kind, 2)[1], tp, quantization)
    check(said)
    assert said["reloaded"] == {}
    assert "model.layers.1.mlp.down_proj" in said["adopted"]


@pytest.mark.parametrize(("quantization", "tp"), [("none", 2), ("fp8_per_channel", 1)])
def test_what_a_loader_computes_is_left_to_it_by_name(policies, quantization, tp):
    said = run(policies("mamba2", 1)[1], policies("mamba2", 2)[1], tp, quantization)
    check(said)
    mixers = [f"backbone.layers.{layer}.mixer" for layer in range(2)]
    assert said["reloaded"] == {mixer: f"'{mixer}.A': computed by aten.neg.default" for mixer in mixers}
    assert {f"{mixer}.in_proj" for mixer in mixers} <= set(said["adopted"])


@pytest.mark.parametrize("form", QUANTIZED)
def test_fp8_checkpoints_too(policies, tmp_path, form):
    folders = []
    for seed in (1, 2):
        folders.append(tmp_path / str(seed))
        quantized(form, policies("llama", seed)[0], folders[-1])
    said = run(*folders, 1, "none")
    check(said)
    if form == "fp8_checkpoint":  # vLLM requantizes the parts of a fused layer to one scale
        assert "model.layers.0.self_attn.qkv_proj" in said["reloaded"]
    else:
        assert said["reloaded"] == {}


def test_adapters_that_are_loaded_stay(policies, tmp_path):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(3)
    config = LoraConfig(r=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    get_peft_model(copy.deepcopy(policies("qwen3", 1)[0]), config).save_pretrained(tmp_path)
    said = run(policies("qwen3", 1)[1], policies("qwen3", 2)[1], 1, "fp8_per_channel", tmp_path)
    check(said)
    assert said["b_adapted"] == said["theirs_adapted"] != said["b"]
    assert said["a_adapted"] != said["a"]
