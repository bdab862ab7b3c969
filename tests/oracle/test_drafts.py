"""A target and the draft model that speculates for it, one receiver and one version: both trees against the oracle, byte
for byte, from draft layers of the target's checkpoint (MTP) and from EAGLE's checkpoints."""

import os
import subprocess

import pytest
import safetensors.torch

import disk_names
import drafts
import oracle
import quantized_checkpoints
import quantized_forms

EMBEDDING = "model.embed_tokens.weight"
EAGLES = {"eagle": drafts.eagle, "eagle3": drafts.eagle3}
WAYS = (("way=path", "direct"), ("way=iterator", "shuffled=3"), ("way=pieces",), ("way=pieces", "direct", "shuffled=5"))


def run(folder, tp, rank, recipe, out, *words):
    command = [os.environ["LAYERCAST_PIPELINE_DRIVER"], folder, tp, rank, recipe, out, "fill=165", *words]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def served(folder, tp, rank, recipe, out, *words):
    done = run(folder, tp, rank, recipe, out, *words)
    assert done.returncode == 0, done.stderr
    return safetensors.torch.load_file(out)


@pytest.fixture(scope="module")
def mtp(checkpoint_cache, tmp_path_factory):
    made = {}

    def make(spec):
        if spec not in made:
            made[spec] = drafts.target_with_draft_layers(spec, checkpoint_cache, tmp_path_factory.mktemp(spec) / "target")
        return made[spec]

    return make


@pytest.mark.parametrize("recipe", ["none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"])
@pytest.mark.parametrize("spec", drafts.MTP)
def test_draft_layers_of_the_targets_checkpoint(spec, recipe, mtp, tmp_path):
    for (tp, rank), way in zip(((1, 0), (2, 1), (4, 0), (4, 3)), WAYS):
        target = oracle.served_tensors(mtp(spec), tp, rank, recipe)
        draft = oracle.served_draft(mtp(spec), tp, rank, recipe)
        assert len(draft) > 5 and not target.keys() & draft.keys()
        got = served(mtp(spec), tp, rank, recipe, tmp_path / "served", "draft=mtp", *way)
        assert oracle.differences(got, target | draft) == []


@pytest.mark.parametrize("form", ["deepseek", "compressed channels"])
def test_draft_layers_of_an_fp8_checkpoint_are_served_as_they_are(form, checkpoint_cache, tmp_path):
    target = drafts.target_with_draft_layers("deepseek_v3_wide", checkpoint_cache, tmp_path / "target")
    folder = quantized_forms.make(target, tmp_path / "quantized", form)
    recipe = quantized_forms.FORMS[form].recipe
    for (tp, rank), way in zip(((1, 0), (2, 0), (2, 1)), (("way=path", "direct"), ("way=iterator",), ("way=path",))):
        expected = quantized_checkpoints.served_tensors(folder, form, tp, rank, recipe)
        draft = quantized_checkpoints.served_draft(folder, form, tp, rank, recipe)
        assert any(tensor.dtype == quantized_forms.FP8 for tensor in draft.values())
        got = served(folder, tp, rank, recipe, tmp_path / "served", "draft=mtp", *way)
        assert oracle.differences(got, expected | draft) == []


@pytest.mark.parametrize("spec", drafts.MTP)
def test_nothing_of_them_is_served_unless_asked_for(spec, mtp, tmp_path):
    got = served(mtp(spec), 2, 0, "none", tmp_path / "served", "way=path")
    assert oracle.differences(got, oracle.served_tensors(mtp(spec), 2, 0)) == []


@pytest.mark.parametrize("recipe", ["none", "fp8_per_block"])
@pytest.mark.parametrize("kind", EAGLES)
def test_a_checkpoint_of_its_own(kind, recipe, checkpoint, checkpoint_cache, tmp_path):
    folder = checkpoint("llama", "a")
    eagle = EAGLES[kind](checkpoint_cache, tmp_path / kind)
    for (tp, rank), way in zip(((1, 0), (2, 1), (4, 3), (2, 0)), WAYS):
        expected = oracle.served_tensors(folder, tp, rank, recipe)
        expected |= oracle.served_draft(folder, tp, rank, recipe, eagle)
        got = served(folder, tp, rank, recipe, tmp_path / "served", f"draft={eagle}", *way)
        assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("name", ["embed_tokens.weight", "shared_head.head.weight"])
def test_a_copy_that_is_not_the_targets_is_refused(name, mtp, tmp_path):
    folder = mtp("deepseek_v3")
    tensors = oracle.read_tensors(folder)
    copy = next(own for own in tensors if own.startswith("model.layers.") and own.endswith(name))
    tensors[copy] = tensors[copy] + 1
    changed = tmp_path / "changed"
    changed.mkdir()
    (changed / "config.json").write_text((folder / "config.json").read_text())
    safetensors.torch.save_file(tensors, changed / "model.safetensors")
    done = run(changed, 1, 0, "none", tmp_path / "served", "way=path", "draft=mtp")
    assert done.returncode == 1 and f"'{copy}' is tied to" in done.stderr and "holds other bytes" in done.stderr
    del tensors[copy]  # a trainer need not send it
    safetensors.torch.save_file(tensors, changed / "model.safetensors")
    got = served(changed, 1, 0, "none", tmp_path / "served", "way=path", "draft=mtp")
    assert oracle.differences(got, oracle.served_tensors(folder, 1, 0) | oracle.served_draft(folder, 1, 0)) == []


def test_what_cannot_be_is_refused(mtp, checkpoint, tmp_path):
    for folder, words, said in ((checkpoint("llama", "a"), ["draft=mtp"], "no draft model is known for [LlamaForCausalLM]"),
                                (checkpoint("qwen3_next", "a"), ["draft=mtp"], "not initialized from checkpoint: draft.")):
        done = run(folder, 1, 0, "none", tmp_path / "served", "way=path", *words)
        assert done.returncode == 1 and said in done.stderr, done.stderr


def stages_of(folder, expected, draft, stages):
    """What each stage of a pipeline has: the last one the draft model too, and the embedding that it shares."""
    config, _ = disk_names.text_part(oracle.read_config(folder), oracle.read_tensors(folder))
    sizes = oracle.stage_sizes(disk_names.layers_of(config), stages)
    of_stages = [oracle.of_stage(expected, config, sizes, stage) for stage in range(stages)]
    of_stages[-1] |= draft | {EMBEDDING: expected[EMBEDDING]}
    return of_stages


@pytest.mark.parametrize("recipe", ["none", "fp8_per_channel", "fp8_per_block"])
@pytest.mark.parametrize("spec", drafts.MTP)
def test_draft_layers_beside_the_last_stage_of_a_pipeline(spec, recipe, mtp, tmp_path):
    for (tp, rank), way in zip(((1, 0), (2, 1), (4, 3)), WAYS):
        target = oracle.served_tensors(mtp(spec), tp, rank, recipe)
        draft = oracle.served_draft(mtp(spec), tp, rank, recipe)
        for stage, expected in enumerate(stages_of(mtp(spec), target, draft, 2)):
            got = served(mtp(spec), tp, rank, recipe, tmp_path / "served", "draft=mtp", "pp=2", f"stage={stage}", *way)
            assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("kind", EAGLES)
def test_a_checkpoint_of_its_own_beside_the_last_stage(kind, checkpoint, checkpoint_cache, tmp_path):
    folder = checkpoint("llama", "a")
    eagle = EAGLES[kind](checkpoint_cache, tmp_path / kind)
    for (tp, rank), way in zip(((1, 0), (2, 1), (4, 3)), WAYS):
        target = oracle.served_tensors(folder, tp, rank, "fp8_per_tensor")
        draft = oracle.served_draft(folder, tp, rank, "fp8_per_tensor", eagle)
        for stage, expected in enumerate(stages_of(folder, target, draft, 2)):
            got = served(folder, tp, rank, "fp8_per_tensor", tmp_path / "served", f"draft={eagle}", "pp=2",
                         f"stage={stage}", *way)
            assert oracle.differences(got, expected) == []
