"""The load plan, the five stages and the receiver against the oracle, byte for byte, before any wire or process comes
in: in order and in disorder, in large pieces and crumbs; by five stages and directly; over different fills of memory, so
that a byte that nobody wrote shows. test_matrix.py has every family, rank count and recipe in one way."""

import functools
import os
import subprocess

import pytest
import safetensors.torch

import disk_names
import matrix
import oracle


@pytest.fixture
def load(checkpoint, tmp_path):
    def run(spec, tp, rank, recipe, *words):
        out = tmp_path / "served.safetensors"
        command = [os.environ["LAYERCAST_PIPELINE_DRIVER"], checkpoint(spec, "a"), tp, rank, recipe, out, *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return safetensors.torch.load_file(out)

    return run


# What is done, and for which ranks.
ALL_RANKS = [(tp, rank) for tp, ranks in matrix.RANKS.items() for rank in ranks]
WAYS = {
    "five stages": (ALL_RANKS, ("fill=165",)),
    "directly": (ALL_RANKS, ("direct", "fill=90")),
    "five stages, in disorder": (((2, 0),), ("fill=90", "shuffled=3", "chunk=5000")),
    "directly, in disorder": (((2, 1),), ("direct", "fill=165", "shuffled=4", "chunk=20000")),
    "crumbs": (((4, 2),), ("fill=255", "shuffled=5", "chunk=100")),
    "files": (((1, 0), (4, 1)), ("way=path", "direct", "fill=165")),
    "iterator, in disorder": (((2, 0), (4, 3)), ("way=iterator", "shuffled=6", "fill=90")),
}


# The ways of a family and recipe come one after another, and ask for the same ranks.
served_tensors = functools.lru_cache(maxsize=16)(oracle.served_tensors)


def assert_served(load, checkpoint, spec, tp, rank, recipe, *words):
    expected = served_tensors(checkpoint(spec, "a"), tp, rank, recipe, "pow2" in words)
    assert oracle.differences(load(spec, tp, rank, recipe, *words), expected) == []


IN_EVERY_WAY = ("llama", "qwen2", "qwen3", "qwen3_blocks", "qwen3_moe_blocks")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spec, recipe", [(spec, recipe) for _, spec, recipe in matrix.ROWS if spec in IN_EVERY_WAY])
def test_a_family_is_served_as_the_oracle_says(spec, recipe, way, load, checkpoint):
    ranks, words = WAYS[way]
    for tp, rank in ranks:
        assert_served(load, checkpoint, spec, tp, rank, recipe, *words)


@pytest.mark.parametrize("spec, recipe", [(spec, recipe) for _, spec, recipe in matrix.ROWS if spec not in IN_EVERY_WAY])
def test_every_other_checkpoint_by_five_stages_and_in_disorder(spec, recipe, load, checkpoint):
    assert_served(load, checkpoint, spec, 2, 1, recipe, "fill=165")
    assert_served(load, checkpoint, spec, 4, 2, recipe, "fill=165", "way=iterator", "shuffled=7")


@pytest.mark.parametrize("words", [("fill=165",), ("direct", "fill=165"), ("way=iterator", "shuffled=7", "fill=90")])
@pytest.mark.parametrize("spec", ["llama", "qwen3_moe_blocks", "deepseek_v3", "gemma2", "gpt_oss", "qwen3_next_blocks"])
def test_scales_of_powers_of_two(spec, words, load, checkpoint):
    for tp, rank in ((1, 0), (2, 0), (4, 3)):
        assert_served(load, checkpoint, spec, tp, rank, "fp8_per_block", "pow2", *words)


# How many stages, and the layers of each where it is not the rule that spreads them.
PIPELINES = {"llama": (2, None), "qwen2": (2, None), "gemma3": (3, None), "qwen3_next": (2, (1, 2)),
             "glm4_moe": (3, None), "deepseek_v3": (2, None), "gemma2": (2, (2, 1)), "nemotron_h": (4, None),
             "qwen3_5": (3, None), "gemma3_vision": (2, None)}


@pytest.mark.parametrize("recipe", ["none", "fp8_per_tensor", "fp8_per_block"])
@pytest.mark.parametrize("spec", PIPELINES)
def test_the_stages_of_a_pipeline(spec, recipe, load, checkpoint):
    folder = checkpoint(spec, "a")
    stages, given = PIPELINES[spec]
    config, _ = disk_names.text_part(oracle.read_config(folder), oracle.read_tensors(folder))
    sizes = given or oracle.stage_sizes(disk_names.layers_of(config), stages)
    whole = served_tensors(folder, 2, 1, recipe, False)
    seen = set()
    for stage in range(stages):
        expected = oracle.of_stage(whole, config, sizes, stage)
        way = ("way=path", "way=iterator", "way=pieces")[stage % 3]
        words = [f"pp={stages}", f"stage={stage}", "direct", "fill=165", way]
        words += [f"layers={','.join(map(str, given))}"] if given else []
        assert oracle.differences(load(spec, 2, 1, recipe, *words), expected) == []
        seen |= expected.keys()
    assert seen == whole.keys()
