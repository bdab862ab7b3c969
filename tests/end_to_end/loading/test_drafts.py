"""Engines that serve a draft model beside its target: one version, one commit, both trees. The bytes of every form are those
of tests/oracle/test_drafts.py; here they go through real engines."""

import pytest

import drafts
import oracle
from reload_setting import spoiled

PROMPT = (3, 11, 4, 250)
RECIPE = "fp8_per_channel"


@pytest.fixture
def assert_exports(program, tmp_path):
    count = iter(range(10**6))

    def check(engine, folder, eagle=None):
        out = tmp_path / f"export-{next(count)}"
        program.export(engine, out)
        for rank in range(2):
            expected = oracle.served_tensors(folder, 2, rank, RECIPE) | oracle.served_draft(folder, 2, rank, RECIPE, eagle)
            assert oracle.differences(oracle.read_export(out, rank), expected) == []
        return out

    return check


def test_draft_layers_of_the_checkpoint(program, start, checkpoint_cache, tmp_path, assert_exports):
    a, b = (drafts.target_with_draft_layers("deepseek_v3", checkpoint_cache, tmp_path / version, version)
            for version in ("a", "b"))
    engine = start("serve", "--model", a, "--tp", 2, "--quantization", RECIPE, "--draft", "mtp")
    plain = start("serve", "--model", a, "--tp", 2, "--quantization", RECIPE)
    assert_exports(engine, a)
    publisher = start("publish", "--model", b)
    for served in (engine, plain):
        program.reload(served, "--publisher", publisher.endpoint)
    state = assert_exports(engine, b)
    program.run("verify", "--engine", engine.endpoint, "--model", b)
    # The draft layers change nothing of what the target answers.
    answers = [program.generate(served, PROMPT, "--max-new", 6)["tokens"] for served in (engine, plain)]
    assert answers[0] == answers[1]
    # A stream has the draft layers behind the decoder's, or wherever it comes to them.
    for folder, order in ((a, "layer"), (b, "shuffled:3")):
        stream = start("publish", "--model", folder, "--mode", "stream", "--order", order)
        program.reload(engine, "--publisher", stream.endpoint)
        assert_exports(engine, folder)
    again = start("serve", "--model", state, "--tp", 2, "--quantization", RECIPE, "--draft", "mtp")
    assert_exports(again, b)


def test_an_eagle_in_a_folder_of_its_own(program, start, checkpoint, checkpoint_cache, tmp_path, assert_exports):
    a, b = checkpoint("llama", "a"), checkpoint("llama", "b")
    eagles = {version: drafts.eagle3(checkpoint_cache, tmp_path / version, version) for version in ("a", "b")}
    engine = start("serve", "--model", a, "--tp", 2, "--quantization", RECIPE, "--draft", eagles["a"])
    assert_exports(engine, a, eagles["a"])
    publisher = start("publish", "--model", b, "--secondary-weights", f"draft.={eagles['b']}")
    program.reload(engine, "--publisher", publisher.endpoint)
    assert_exports(engine, b, eagles["b"])
    assert program.reload(engine)["ok"]  # both folders that it came from
    assert_exports(engine, a, eagles["a"])


@pytest.mark.parametrize("policy", ["staged", "undo"])
def test_a_draft_that_fails_leaves_both_on_the_old_version(policy, program, start, checkpoint_cache, tmp_path, assert_exports):
    """Its layers come last: by then `undo` has written the target's."""
    a, b = (drafts.target_with_draft_layers("deepseek_v3", checkpoint_cache, tmp_path / version, version)
            for version in ("a", "b"))
    nan_in = "model.layers.3.eh_proj.weight"
    bad = spoiled(b, tmp_path / "nan", lambda tensors: tensors[nan_in].view(-1)[3].fill_(float("nan")))
    engine = start("serve", "--model", a, "--tp", 2, "--quantization", RECIPE, "--draft", "mtp", "--commit", policy)
    before = program.generate(engine, PROMPT, "--max-new", 6)["tokens"]
    for source in (("--model", bad),
                   ("--publisher", start("publish", "--model", bad, "--mode", "stream", "--stream-window", 1).endpoint)):
        refused = program.reload(engine, *source, status=1)
        assert nan_in in refused["error"]["message"]
        assert refused["version"] == engine.version
        assert_exports(engine, a)
        assert program.generate(engine, PROMPT, "--max-new", 6)["tokens"] == before
    assert program.reload(engine, "--model", b)["ok"]
    assert_exports(engine, b)


def test_a_plan_shows_both_trees(program, checkpoint, checkpoint_cache, tmp_path):
    target = drafts.target_with_draft_layers("deepseek_v3", checkpoint_cache, tmp_path / "target")
    plan = program.run("plan", "--model", target, "--draft", "mtp").json
    placed = {p["tensor"]: p for p in plan["placements"]}
    assert placed["model.layers.3.eh_proj.weight"]["layer"] == "draft.layers.3.eh_proj"
    assert placed["model.layers.3.eh_proj.weight"]["rules"] == ["prefix model.layers.3 -> draft.layers.3"]
    assert placed["model.layers.2.mlp.gate.weight"]["layer"] == "model.layers.2.mlp.gate"
    assert {s["name"]: s["rule"] for s in plan["skipped"]} == {
        "model.layers.3.embed_tokens.weight": "tied to model.embed_tokens.weight",
        "model.layers.3.shared_head.head.weight": "tied to lm_head.weight"}
    without = program.run("plan", "--model", target).json
    assert not [p for p in without["placements"] if p["layer"].startswith("draft.")]
    assert all(s["rule"] == "a draft layer (MTP) is not served" for s in without["skipped"])
    eagle = drafts.eagle(checkpoint_cache, tmp_path / "eagle")
    plan = program.run("plan", "--model", checkpoint("llama", "a"), "--draft", eagle).json
    assert "draft.fc.weight" in {p["tensor"] for p in plan["placements"]}
    assert {s["name"]: s["rule"] for s in plan["skipped"]} == {
        "draft.embed_tokens.weight": "the draft model embeds as its target does"}
