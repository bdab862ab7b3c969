"""Checkpoints as Python sees them, against safetensors."""

import layercast
import pytest
import safetensors.torch
import torch


def test_a_checkpoint_is_a_mapping_of_what_safetensors_reads(folder):
    expected = safetensors.torch.load_file(folder / "model.safetensors")
    checkpoint = layercast.Checkpoint(folder)
    assert set(checkpoint) == set(expected) and len(checkpoint) == len(expected)
    for name, tensor in checkpoint.items():
        assert torch.equal(tensor.torch(), expected[name]), name
    assert checkpoint.nbytes == sum(tensor.nbytes for tensor in expected.values())
    assert [spec.name for spec in checkpoint.specs] == list(checkpoint) == [name for name, _ in checkpoint.walk()]


def test_its_config_is_that_of_the_folder(folder):
    assert layercast.Checkpoint(folder).config == (folder / "config.json").read_text()


def test_a_tensor_outlives_its_checkpoint(folder):
    name = "model.norm.weight"
    tensor = layercast.Checkpoint(folder)[name].torch()
    assert torch.equal(tensor, safetensors.torch.load_file(folder / "model.safetensors")[name])


def test_what_is_missing_or_damaged_is_named(folder, tmp_path):
    with pytest.raises(KeyError, match="no.such"):
        layercast.Checkpoint(folder)["no.such"]
    with pytest.raises(layercast.NotFound, match="nowhere"):
        layercast.Checkpoint(tmp_path / "nowhere")
    (tmp_path / "model.safetensors").write_bytes(b"not a header at all")
    with pytest.raises(layercast.Corrupt, match="model.safetensors"):
        layercast.Checkpoint(tmp_path)


def test_membership_and_get_are_those_of_a_mapping(folder):
    checkpoint = layercast.Checkpoint(folder)
    assert "model.norm.weight" in checkpoint and "no.such" not in checkpoint
    assert checkpoint.get("no.such") is None
