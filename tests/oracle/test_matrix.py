"""Every family x recipe x number of ranks: what an engine serves after a cold load, what it serves after a live reload over
another version, and what the oracle computes of the same files are the same bytes."""

import json
import os
import subprocess

import pytest
import safetensors.torch

import matrix
import oracle
import recipes


def served(folder, tp, rank, recipe, out, *words):
    command = [os.environ["LAYERCAST_PIPELINE_DRIVER"], folder, tp, rank, recipe, out, "way=path", *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return safetensors.torch.load_file(out)


@pytest.mark.parametrize("tp", matrix.RANKS)
@pytest.mark.parametrize("architecture, spec, recipe", matrix.ROWS)
def test_cold_and_live_and_oracle_are_the_same_bytes(architecture, spec, recipe, tp, checkpoint, tmp_path):
    old, new = (checkpoint(spec, version) for version in ("a", "b"))
    assert oracle.read_config(new)["architectures"] == [architecture]
    for rank in range(tp):
        expected = oracle.served_tensors(new, tp, rank, recipe)
        cold = served(new, tp, rank, recipe, tmp_path / "cold", "direct", "fill=165")
        assert oracle.differences(cold, expected) == [], f"cold, rank {rank}"
        if rank not in matrix.RANKS[tp]:
            continue
        live = served(new, tp, rank, recipe, tmp_path / "live", "direct", "fill=90", f"before={old}")
        assert oracle.differences(live, expected) == [], f"live, rank {rank}"


@pytest.mark.parametrize("spec", sorted({spec for _, spec, _ in matrix.ROWS}))
def test_no_tensor_of_the_one_version_would_do_for_the_other(spec, checkpoint):
    """Or a reload that leaves it out would pass."""
    old, new = (oracle.served_tensors(checkpoint(spec, version), 1, 0) for version in ("a", "b"))
    assert old.keys() == new.keys()
    assert not [name for name in new if oracle.raw_bytes(old[name]).equal(oracle.raw_bytes(new[name]))]


def test_every_architecture_and_recipe_and_checkpoint_has_its_row():
    said = subprocess.run([os.environ["LAYERCAST_PROGRAM"], "models", "--json"], capture_output=True, check=True).stdout
    models = json.loads(said)
    assert sorted(matrix.FAMILIES) == sorted(family["architecture"] for family in models["families"])
    assert sorted(recipes.RECIPES) == sorted(models["recipes"])
    assert matrix.forgotten() == set()
    for architecture in matrix.FAMILIES:
        assert {recipe for row, _, recipe in matrix.ROWS if row == architecture} == set(recipes.RECIPES)
