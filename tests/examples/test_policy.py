"""The trainer's policy in C++ is the Qwen3 of Hugging Face transformers: same names, same numbers."""

import os
import subprocess

import safetensors.torch
import torch
import transformers


def test_logits_equal_those_of_transformers_on_the_same_weights(tmp_path):
    subprocess.run([os.environ["LAYERCAST_POLICY_DUMP"], tmp_path], check=True, timeout=60)
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, output_loading_info=True)
    assert type(model) is transformers.Qwen3ForCausalLM
    assert not any(loading.values()), loading
    dumped = safetensors.torch.load_file(tmp_path / "logits.safetensors")
    with torch.no_grad():
        expected = model(dumped["tokens"]).logits
    assert expected.abs().max() > 1
    difference = (dumped["logits"] - expected).abs().max() / expected.abs().max()
    assert difference < 1e-5, difference
