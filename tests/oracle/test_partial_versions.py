"""Versions that hold a part of the model's tensors, over a whole one: the layers that they touch are theirs, the others keep every byte,
as if one checkpoint had held both."""

import json

import pytest
import safetensors.torch

import oracle
import quantized_checkpoints
import quantized_forms

PARTS = {
    "one block": lambda name: "layers.1." in name,
    "attention": lambda name: ".self_attn." in name,
    "norms": lambda name: "norm" in name,
    "all but experts": lambda name: ".experts." not in name,
}


@pytest.fixture
def partial(tmp_path):
    """The tensors of `new` that are in `part`, in a folder; and, in another one, those over `old`."""

    def make(new, old, part):
        tensors = {name: tensor for name, tensor in oracle.read_tensors(new).items() if part(name)}
        folders = tmp_path / "partial", tmp_path / "together"
        for folder, content in zip(folders, (tensors, oracle.read_tensors(old) | tensors)):
            folder.mkdir()
            safetensors.torch.save_file(content, folder / "model.safetensors")
            (folder / "config.json").write_text(json.dumps(oracle.read_config(new)))
        return folders

    return make


def assert_same(got, expected):
    assert not isinstance(got, str), got
    assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("spec, recipe, part", [("qwen3", "none", "one block"), ("qwen3", "fp8_per_tensor", "attention"),
                                                ("deepseek_v3_wide", "fp8_per_channel", "attention"),
                                                ("deepseek_v3_wide", "nvfp4", "all but experts"),
                                                ("qwen3", "fp8_per_block", "norms")])
def test_what_is_not_there_is_kept(spec, recipe, part, checkpoint, partial, load):
    old = checkpoint(spec, "b")
    folder, together = partial(checkpoint(spec, "a"), old, PARTS[part])
    for rank in range(2):
        expected = oracle.served_tensors(together, 2, rank, recipe)
        assert oracle.differences(expected, oracle.served_tensors(old, 2, rank, recipe)) != []
        for words, way in (((), "path"), (("direct", "commit=undo"), "path"), (("shuffled=7", "commit=in_place"), "iterator")):
            assert_same(load(folder, 2, rank, recipe, "partial", f"before={old}", *words, way=way), expected)


def test_layers_that_are_quantized_already_are_kept_and_replaced(checkpoint, partial, tmp_path, load):
    codes = quantized_forms.make(checkpoint("qwen3_wide", "a"), tmp_path / "a", "nvfp4 packed")
    old = quantized_forms.make(checkpoint("qwen3_wide", "b"), tmp_path / "b", "nvfp4 packed")
    folder, together = partial(codes, old, PARTS["attention"])
    expected = quantized_checkpoints.served_tensors(together, "nvfp4 packed", 2, 1, "nvfp4")
    for way in ("path", "iterator"):
        assert_same(load(folder, 2, 1, "nvfp4", "partial", f"before={old}", way=way), expected)


def test_a_layer_of_which_a_part_is_missing_is_refused_naming_that(checkpoint, partial, load):
    old, missing = checkpoint("qwen3", "b"), "model.layers.0.self_attn.k_proj.weight"
    folder, _ = partial(checkpoint("qwen3", "a"), old, lambda name: ".self_attn." in name and name != missing)
    for words, way in (((), "path"), (("direct",), "path"), ((), "iterator")):
        message = load(folder, 2, 1, "none", "partial", f"before={old}", *words, way=way)
        assert message.rstrip().endswith(f":\n  1 missing. Following weights were not initialized from checkpoint: {missing}")


def test_without_being_called_partial_it_is_refused(checkpoint, partial, load):
    old = checkpoint("qwen3", "b")
    folder, _ = partial(checkpoint("qwen3", "a"), old, PARTS["norms"])
    assert "missing" in load(folder, 1, 0, "none", f"before={old}")


def test_there_is_something_to_keep(checkpoint, partial, load):
    folder, _ = partial(checkpoint("qwen3", "a"), checkpoint("qwen3", "b"), PARTS["norms"])
    for way in ("path", "iterator"):
        message = load(folder, 1, 0, "none", "partial", way=way)
        assert "expected a whole version to be served, got none" in message
