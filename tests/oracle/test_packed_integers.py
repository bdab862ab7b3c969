"""Integers of 4 and of 8 bits, packed as compressed-tensors packs them (W4A16, W8A16): dequantized if asked for, against the oracle byte
for byte, and refused otherwise."""

import json

import pytest
import safetensors.torch
import torch

import oracle
from quantized_forms import LINEAR, edit_config


def packed(codes, bits):
    """Offset by half of their range, several in an int32 from its low end on."""
    unsigned = (codes.long() + (1 << bits - 1)).reshape(len(codes), -1, 32 // bits)
    words = (unsigned << torch.arange(0, 32, bits)).sum(dim=-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


@pytest.fixture
def made(checkpoint, tmp_path):
    """The checkpoint, and the one of its dequantized weights."""

    def make(spec, bits, group):
        tensors, plain = {}, {}
        for name, weight in oracle.read_tensors(checkpoint(spec, "a")).items():
            module = name.removesuffix(".weight")
            if not module.endswith(LINEAR) or name == module:
                tensors[name] = plain[name] = weight
                continue
            rows, columns = weight.shape
            groups = weight.float().reshape(rows, -1, group or columns)
            scale = (groups.abs().amax(dim=2) / ((1 << bits - 1) - 0.5)).to(torch.bfloat16)
            codes = (groups / scale.float()[..., None]).round().clamp(-(1 << bits - 1), (1 << bits - 1) - 1).to(torch.int8)
            tensors |= {f"{module}.weight_packed": packed(codes.reshape(rows, columns), bits), f"{module}.weight_scale": scale,
                        f"{module}.weight_shape": torch.tensor([rows, columns])}
            plain[name] = (codes * scale.float()[..., None]).reshape(rows, columns).to(weight.dtype)
        weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group" if group else "channel"}
        config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                  "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights | ({"group_size": group} if group else {})}}}
        folders = tmp_path / "packed", tmp_path / "plain"
        for folder, content, more in zip(folders, (tensors, plain), ({"quantization_config": config}, {})):
            folder.mkdir()
            safetensors.torch.save_file(content, folder / "model.safetensors")
            (folder / "config.json").write_text(json.dumps(oracle.read_config(checkpoint(spec, "a")) | more))
        return folders

    return make


@pytest.mark.parametrize("spec, bits, group, recipe", [("qwen3_wide", 4, 128, "none"), ("qwen3_wide", 4, 32, "fp8_per_channel"),
                                                       ("qwen3_wide", 8, None, "none"), ("deepseek_v3_wide", 4, 64, "none")])
def test_they_are_dequantized_if_asked_for(spec, bits, group, recipe, made, load):
    folder, plain = made(spec, bits, group)
    for tp, rank in ((1, 0), (2, 1)):
        got = load(folder, tp, rank, recipe, "requantize", "direct")
        assert not isinstance(got, str), got
        assert oracle.differences(got, oracle.served_tensors(plain, tp, rank, recipe)) == []


def test_they_are_refused_unless_asked_for(made, load):
    folder, _ = made("qwen3_wide", 4, 128)
    for recipe, words, way in (("none", (), "path"), ("checkpoint", (), "path"), ("none", ("requantize",), "iterator")):
        message = load(folder, 1, 0, recipe, *words, way=way)
        assert "expected weights for none, got codes of 4-bit integers" in message, message


@pytest.mark.parametrize("fields, refusal", [({"symmetric": False}, "weight_zero_point', are missing"),
                                             ({"actorder": "group"}, "actorder: expected null, 'weight' or 'static'"),
                                             ({"num_bits": 3}, "num_bits: expected 4 or 8 of packed integers, got 3")])
def test_others_are_refused_naming_the_field(fields, refusal, made, load):
    folder, _ = made("qwen3_wide", 4, 128)
    edit_config(folder, lambda config: config["quantization_config"]["config_groups"]["group_0"]["weights"].update(fields))
    assert refusal in load(folder, 1, 0, "none", "requantize")
