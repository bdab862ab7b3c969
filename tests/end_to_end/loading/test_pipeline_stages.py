"""Engines whose layers lie on several pipeline stages: the answers of an engine without, one commit for all ranks of all
stages, and no wait that a lost stage would make endless."""

import os
import signal

import pytest

import drafts
import oracle
import program as layercast_program
from reload_setting import PROMPT, RECIPE, fired, struck_mid_transfer


def answer(program, engine, *arguments):
    said = program.generate(engine, PROMPT, "--max-new", 12, "--logprobs", *arguments)
    return said["tokens"], said["logprobs"]


@pytest.mark.parametrize("tp, pp, spec", [(1, 2, "llama"), (2, 2, "qwen2"), (1, 3, "gemma2")])
def test_stages_answer_as_one_rank_does_and_reload_as_one(tp, pp, spec, program, start, checkpoint, assert_serves):
    a, b = checkpoint(spec, "a"), checkpoint(spec, "b")
    serve = ("serve", "--model", a, "--tp", tp, "--quantization", RECIPE)
    engine, whole = start(*serve, "--pp", pp), start(*serve)
    assert (engine.ready["tp"], engine.ready["pp"], len(engine.pids)) == (tp, pp, tp * pp)
    assert whole.ready["pp"] == 1 and engine.version == whole.version
    before = answer(program, engine, "--temperature", 0.8, "--seed", 5)
    assert before == answer(program, whole, "--temperature", 0.8, "--seed", 5)
    for publisher in (start("publish", "--model", b), start("publish", "--model", b, "--mode", "stream")):
        reports = [program.reload(one, "--publisher", publisher.endpoint)["report"] for one in (engine, whole)]
        assert reports[0]["version"] == reports[1]["version"]
        assert_serves(engine, b, RECIPE)
        assert answer(program, engine) == answer(program, whole) != before
    status = program.status(engine)
    assert [rank["rank"] for rank in status["ranks"]] == list(range(tp * pp))
    assert len({rank["served_digest"] for rank in status["ranks"]}) == tp * pp
    program.run("verify", "--engine", engine.endpoint, "--model", b)
    assert f"{tp * pp} ranks" in program.text("status", "--engine", engine.endpoint)


def test_stages_have_the_layers_that_they_are_told_to(program, start, checkpoint, tmp_path):
    a, b = checkpoint("gemma2", "a"), checkpoint("gemma2", "b")  # three layers: two and one by the rule
    serve = ("serve", "--model", a, "--quantization", RECIPE)
    engine, whole = start(*serve, "--pp", 2, "--pp-layers", "1,2"), start(*serve)
    assert answer(program, engine) == answer(program, whole)
    os.kill(program.status(engine)["ranks"][1]["pid"], signal.SIGKILL)  # and so they have when they are started anew
    program.generate(engine, PROMPT)
    publisher = start("publish", "--model", b)
    for served, folder in ((engine, "state"), (whole, "whole")):
        program.reload(served, "--publisher", publisher.endpoint)
        program.export(served, tmp_path / folder)
    stages = [oracle.read_export(tmp_path / "state", rank) for rank in range(2)]
    assert [{name.split(".")[2] for name in stage if name.startswith("model.layers.")} for stage in stages] == \
        [{"0"}, {"1", "2"}]
    assert oracle.differences({**stages[0], **stages[1]}, oracle.read_export(tmp_path / "whole", 0)) == []
    start("serve", "--model", tmp_path / "state", *serve[3:], "--pp", 2, "--pp-layers", "1,2")
    lent = ("--load-format", "remote", "--from-engine", engine.endpoint)
    refused = program.run(*serve, "--pp", 2, *lent, status=1).json["error"]["message"]
    assert "pp_layers expected [], got [1,2]" in refused
    wrong = program.run(*serve, "--pp", 2, "--pp-layers", "1,1", status=1).json["error"]["message"]
    assert "expected num_hidden_layers 3 layers on all stages together, got 2" in wrong


def test_versions_land_in_the_middle_of_answers(setting, program, start):
    """Each token is of the version that the answer names for it, whatever stage it went through."""
    setting.serve(pp=2)
    whole = start("serve", "--model", setting.folders["a"], "--tp", 2, "--quantization", RECIPE)
    expected = program.generate(whole, PROMPT, "--max-new", 200)["tokens"]
    publishers = [setting.publish(), start("publish", "--model", setting.folders["a"])]
    versions = [publisher.version for publisher in publishers]
    asking = program.start("generate", "--engine", setting.engine.endpoint, "--tokens", ",".join(map(str, PROMPT)),
                           "--max-new", 200, "--repeat", 20)
    reloads = 0
    while asking[1].poll() is None and reloads < 200:
        publisher = publishers[reloads % 2]
        setting.reload("--publisher", publisher.endpoint, "--pause-mode", "keep", status=0)
        reloads += 1
    answers = program.finish(asking).json["answers"]
    assert any(len(answer["spans"]) > 1 for answer in answers)
    for answer in answers:
        first = answer["spans"][0]
        assert answer["spans"][-1]["end"] == len(answer["tokens"]) == 200
        if first["version"] != versions[0]:
            assert answer["tokens"][: first["end"]] == expected[: first["end"]]
    setting.assert_serves(setting.engine, setting.folders["b" if reloads % 2 else "a"], RECIPE)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stage_that_dies_is_named_and_started_anew(rank, setting, program):
    setting.serve(tp=1, pp=2)
    ask = ("generate", "--engine", setting.engine.endpoint, "--tokens", "3,11", "--max-new", 400)
    expected = program.run(*ask).json["tokens"]
    lost = program.status(setting.engine)["ranks"][rank]["pid"]
    under_way = program.start(*ask)
    os.kill(lost, signal.SIGKILL)
    assert program.finish(under_way).json["tokens"] == expected
    layercast_program.wait_until(lambda: f"rank {rank}: process {lost}" in setting.engine.errors(), 20,
                                 "nobody said which rank had died")
    setting.assert_serving_a()
    setting.publish()
    setting.assert_takes_b()


@pytest.mark.parametrize("point", ["receive.chunk=kill@3", "quantize=throw@2", "commit.prepare=kill", "commit.prepare=throw"])
def test_a_version_that_one_stage_does_not_take_is_taken_by_none(point, setting):
    setting.serve(tp=1, pp=2, failpoints=f"rank1:{point}")
    publisher = setting.publish()
    done = setting.reload("--publisher", publisher.endpoint)
    assert fired(setting.engine, point.partition("=")[0])
    assert struck_mid_transfer(done["report"]) or point.startswith("commit")
    setting.assert_failed_and_still_serving_a(done, "rank 1")
    setting.assert_takes_b()


def test_a_stage_killed_while_it_commits_leaves_one_whole_version(setting):
    setting.serve(tp=1, pp=2, failpoints="rank1:commit.copy=kill@3")
    publisher = setting.publish()
    done = setting.reload("--publisher", publisher.endpoint)
    assert fired(setting.engine, "commit.copy")
    served = "b" if done["version"] == publisher.version else "a"
    assert done["ok"] == (served == "b")
    setting.assert_serves(setting.engine, setting.folders[served], RECIPE)
    setting.assert_takes_b()


def test_the_draft_model_is_loaded_on_the_last_stage(program, start, checkpoint_cache, tmp_path):
    a, b = (drafts.target_with_draft_layers("deepseek_v3", checkpoint_cache, tmp_path / version, version)
            for version in ("a", "b"))
    serve = ("serve", "--model", a, "--quantization", RECIPE)
    engine, plain = start(*serve, "--pp", 3, "--draft", "mtp"), start(*serve)
    publisher = start("publish", "--model", b)
    for served in (engine, plain):
        program.reload(served, "--publisher", publisher.endpoint)
    program.run("verify", "--engine", engine.endpoint, "--model", b)
    files = program.export(engine, tmp_path / "export")["files"]
    assert len(files) == 3
    drafted = [any(name.startswith("draft.") for name in oracle.read_export(tmp_path / "export", rank)) for rank in range(3)]
    assert drafted == [False, False, True]
    assert answer(program, engine) == answer(program, plain)


def test_what_stages_serve_is_lent_and_exported_to_engines_of_the_same_stages(program, start, checkpoint, tmp_path):
    a = checkpoint("llama", "a")
    serve = ("serve", "--quantization", RECIPE, "--model")
    engine = start(*serve, a, "--pp", 2)
    expected = answer(program, engine)
    lent = ("--load-format", "remote", "--from-engine", engine.endpoint)
    assert answer(program, start(*serve, a, "--pp", 2, *lent)) == expected
    assert "pp expected 1, got 2" in program.run(*serve, a, *lent, status=1).errors
    program.export(engine, tmp_path / "state")
    assert answer(program, start(*serve, tmp_path / "state", "--pp", 2)) == expected


@pytest.mark.parametrize("arguments, said", [
    (("--pp", 3), "pp_size 3 exceeds num_hidden_layers 2"),
    (("--pp", 2, "--tp", 64), "intermediate_size 344 is not divisible by tp_size 64"),
    (("--pp", 2, "--device", "cuda"), "--device cuda: one rank computes the whole model: expected --pp 1, got 2"),
])
def test_stages_that_cannot_be_are_refused(arguments, said, program, checkpoint):
    assert said in program.run("serve", "--model", checkpoint("llama", "a"), *arguments, status=1).errors
