"""Checkpoints that lie otherwise than the model does, and the file of rules that says how: cold, live from another
version, live from a publisher, and the oracle are the same bytes."""

import json
import os
import subprocess

import pytest
import safetensors.torch

import foreign
import oracle
import quantized_forms

RANK_SECONDS = 60
SPECS = ("llama", "qwen2")
# Of the recipes, those whose scales follow from magnitudes in each way there is, and one of small blocks.
RECIPES = {"none": SPECS, "fp8_per_tensor": ("qwen2",), "fp8_per_channel": SPECS, "fp8_per_block": ("llama",),
           "mxfp8": ("qwen3_blocks",), "nvfp4": ("qwen3_blocks",)}


@pytest.fixture(scope="module")
def laid_out(checkpoint, tmp_path_factory):
    made = {}

    def make(spec, version, layout):
        key = (spec, version, layout)
        if key not in made:
            made[key] = foreign.make(checkpoint(spec, version), tmp_path_factory.mktemp(spec) / layout, layout)
        return made[key]

    return make


def start(folder, tp, rank, recipe, out, *words):
    command = [os.environ["LAYERCAST_PIPELINE_DRIVER"], folder, tp, rank, recipe, out, f"rules={folder / foreign.FILE}",
               *words]
    return subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)


def served(folder, tp, recipe, out, *words):
    """By rank. They run together: a stream is walked once for all of them."""
    ranks = [start(folder, tp, rank, recipe, out / f"rank-{rank}", *words) for rank in range(tp)]
    for rank in ranks:
        errors = rank.communicate(timeout=RANK_SECONDS)[1]
        assert rank.returncode == 0, errors
    return [safetensors.torch.load_file(out / f"rank-{rank}") for rank in range(tp)]


def assert_served(folder, usual, tp, recipe, out, *words):
    for rank, got in enumerate(served(folder, tp, recipe, out, *words)):
        assert oracle.differences(got, oracle.served_tensors(usual, tp, rank, recipe)) == [], f"rank {rank}, {words}"


@pytest.mark.parametrize("layout", foreign.LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_torch_undoes_what_the_rules_declare(spec, layout, laid_out, checkpoint):
    usual, read = oracle.read_tensors(checkpoint(spec, "b")), foreign.undo(laid_out(spec, "b", layout))
    assert read.keys() == usual.keys()
    assert oracle.differences(read, usual) == []


@pytest.mark.parametrize("spec, recipe", [("qwen3_tied", "none"), ("deepseek_v3", "fp8_per_channel")])
def test_the_inner_models_names_need_no_rules(spec, recipe, checkpoint, tmp_path):
    """As transformers' AutoModel saves them, without "model." before them."""
    usual, folder = checkpoint(spec, "a"), tmp_path / "inner"
    folder.mkdir()
    (folder / "config.json").write_bytes((usual / "config.json").read_bytes())
    (folder / foreign.FILE).write_text("{}")
    inner = {name.removeprefix("model."): tensor for name, tensor in oracle.read_tensors(usual).items()}
    assert "embed_tokens.weight" in inner and "layers.0.input_layernorm.weight" in inner and "norm.weight" in inner
    safetensors.torch.save_file(inner, folder / "model.safetensors")
    assert_served(folder, usual, 2, recipe, tmp_path, "way=path", "direct", "fill=165")


@pytest.mark.parametrize("layout", foreign.LAYOUTS)
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("spec, recipe", [(spec, recipe) for recipe, specs in RECIPES.items() for spec in specs])
def test_cold_and_live_and_oracle_are_the_same_bytes(spec, recipe, tp, layout, laid_out, checkpoint, tmp_path):
    old, new = laid_out(spec, "a", layout), laid_out(spec, "b", layout)
    usual = checkpoint(spec, "b")
    assert_served(new, usual, tp, recipe, tmp_path, "way=path", "direct", "fill=165")
    assert_served(new, usual, tp, recipe, tmp_path, "way=path", "fill=90", f"before={old}")


@pytest.mark.parametrize("layout", foreign.LAYOUTS)
@pytest.mark.parametrize("mode", ["snapshot", "stream"])
@pytest.mark.parametrize("recipe", ["none", "fp8_per_channel"])
def test_from_a_publisher_and_in_pieces(recipe, mode, layout, laid_out, checkpoint, publish, tmp_path):
    folder, usual = laid_out("llama", "b", layout), checkpoint("llama", "b")
    words = {"snapshot": ("channel=shm", "direct"), "stream": ("channel=zmq", "chunk=5000")}[mode]
    assert_served(folder, usual, 2, recipe, tmp_path, f"way={publish(folder, mode, 'layer')}", "fill=165", *words)
    assert_served(folder, usual, 2, recipe, tmp_path, "way=iterator", "shuffled=5", "fill=165")


@pytest.mark.parametrize("suffix, missing", [("down_proj.weight_packed", "weight"),
                                             ("down_proj.weight_scale", "weight_scale"),
                                             ("down_proj.weight_global_scale", "weight_scale_2")])
def test_codes_and_scales_that_are_dropped_are_missing(suffix, missing, checkpoint, tmp_path):
    folder = quantized_forms.make(checkpoint("qwen3_blocks", "a"), tmp_path / "quantized", "nvfp4 packed")
    (folder / foreign.FILE).write_text(json.dumps({"names": [{"suffix": suffix, "drop": "x"}]}))
    done = start(folder, 1, 0, "nvfp4", tmp_path / "served", "way=path")
    errors = done.communicate(timeout=RANK_SECONDS)[1]
    assert done.returncode == 1 and "not initialized from checkpoint" in errors, errors
    assert f"model.layers.0.mlp.down_proj.{missing}" in errors, errors


@pytest.mark.parametrize("words", [(), ("requantize",)])
@pytest.mark.parametrize("suffix", ["o_proj.weight", "o_proj.weight_scale_inv"])
def test_tensors_that_are_quantized_already_are_refused_by_name(suffix, words, checkpoint, tmp_path):
    """Codes would be read beside scales that are not theirs: of a square matrix nothing else would show it."""
    folder = quantized_forms.make(checkpoint("qwen3_blocks", "a"), tmp_path / "quantized", "deepseek")
    (folder / foreign.FILE).write_text(json.dumps({"transforms": [{"suffix": suffix, "transpose": {}}]}))
    done = start(folder, 1, 0, "fp8_per_block", tmp_path / "served", "way=path", *words)
    errors = done.communicate(timeout=RANK_SECONDS)[1]
    assert done.returncode == 1 and f"{suffix}' [" in errors and f": suffix {suffix}: transpose: expected a tensor in " \
        "full precision" in errors, errors
