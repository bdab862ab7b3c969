"""Versions that a publisher keeps and an engine goes back to; the commands of docs/versions.md run as they are printed."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

RECIPE = "fp8_per_channel"
PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "versions.md").read_text()


def save(source, folder):
    """As a trainer does that says when it is done."""
    shutil.copytree(source, folder)
    (folder / "STABLE").touch()


def versions(program, publisher, *arguments):
    return program.run("versions", *arguments, "--publisher", publisher.endpoint).json["versions"]


def refused(program, engine, *command):
    """The error of a reload or a rollback of one engine."""
    return program.run(*command, "--engine", engine.endpoint, status=1).json["engines"][0]["error"]


def step_of(version):
    return version["lineage"], version["step"]


def test_the_commands_of_the_page_run(program, start, checkpoint, tmp_path, monkeypatch):
    """Only the ports are others, so that tests may run at the same time."""
    monkeypatch.chdir(tmp_path)
    for folder, letter in (("checkpoint-40", "a"), ("checkpoint-41", "b"), ("final", "a")):
        save(checkpoint("qwen3", letter), tmp_path / "runs" / folder)
    commands = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 14
    endpoints, said = {}, {}
    for line in commands:
        words = shlex.split(line)[1:]
        if "--bind" in words:
            at = words.index("--bind") + 1
            name, words[at] = words[at], "tcp://127.0.0.1:0"
            endpoints[name] = start(*words).endpoint
            continue
        done = subprocess.run([program.path, *(endpoints.get(word, word) for word in words)], capture_output=True, text=True,
                              check=False, timeout=120, env=dict(os.environ))
        assert done.returncode == 0, (line, done)
        said[line.split(" ", 1)[1].replace("tcp://127.0.0.1:", "")] = done.stdout
    assert "serves run-17@41" in said["reload --engine 7800 --publisher 7700 --latest"]
    assert "serves run-17@40" in said["reload --engine 7800 --publisher 7700 --version run-17@40"]
    assert "serves run-17@41" in said["rollback --engine 7800"] and "in place of run-17@40" in said["rollback --engine 7800"]
    assert "run-17@42" in said["publish --to 7700 --model runs/final --step 42"]
    assert "pinned" in said["versions pin --publisher 7700 --version run-17@42"]
    evicted = said["versions evict --publisher 7700 --version run-17@40"]
    assert all("evicted" in line for line in evicted.splitlines() if "run-17@40" in line)


@pytest.fixture
def watched(program, start, checkpoint, tmp_path):
    save(checkpoint("qwen3", "a"), tmp_path / "step_1")
    return start("publish", "--watch", tmp_path, "--lineage", "run", "--run", "job", "--keep", 5)


def wait_until(program, publisher, steps):
    """The publisher looks at its folder on its own; this asks until it has seen it."""
    for _ in range(600):
        kept = versions(program, publisher)
        if [one["version"]["step"] for one in kept] == steps:
            return kept
    raise AssertionError(kept)


def test_folders_are_published_as_a_trainer_saves_them(program, watched, checkpoint, tmp_path):
    assert watched.ready["watch"] == str(tmp_path)
    wait_until(program, watched, [1])
    half = tmp_path / "step_2"
    save(checkpoint("qwen3", "b"), half)
    (half / "STABLE").unlink()
    whole = next(half.glob("*.safetensors"))
    whole.rename(tmp_path / "withheld")
    (half / "STABLE").touch()
    save(checkpoint("qwen3", "a"), tmp_path / "step_3")
    wait_until(program, watched, [1, 3])
    (tmp_path / "withheld").rename(whole)  # late: step 2 is not after 3
    save(checkpoint("qwen3", "b"), tmp_path / "step_4")
    wait_until(program, watched, [1, 3, 4])
    shutil.rmtree(tmp_path / "step_3")
    save(checkpoint("qwen3", "b"), tmp_path / "step_3")
    kept = wait_until(program, watched, [1, 3, 4, 3])
    assert [(one["run"], one["shadowed"]) for one in kept] == [("job", False), ("job", True), ("job", True),
                                                               ("job-resumed-1", False)]


def test_an_engine_takes_any_kept_version_by_name_or_digest(program, start, checkpoint, assert_serves, tmp_path):
    folders = {1: "a", 2: "b", 3: "a"}
    for step, letter in folders.items():
        save(checkpoint("qwen3", letter), tmp_path / f"step_{step}")
    publisher = start("publish", "--watch", tmp_path, "--lineage", "run", "--keep", 3, "--allow-path", tmp_path)
    listed = program.run("versions", "--publisher", publisher.endpoint).json
    one = listed["versions"][0]["bytes"]
    assert [each["added_bytes"] for each in listed["versions"]][2] == 0  # step 3 has the bytes of step 1
    assert listed["memory_bytes"] < 2 * one + 1
    engine = start("serve", "--model", checkpoint("qwen3", "a"), "--quantization", RECIPE, "--tp", 2)

    def take(*arguments):
        return program.reload(engine, "--publisher", publisher.endpoint, *arguments)["version"]

    assert step_of(take("--latest")) == ("run", 3)
    assert step_of(take("--version", "run@2")) == ("run", 2)
    assert_serves(engine, checkpoint("qwen3", "b"), RECIPE)
    resumed = program.run("publish", "--to", publisher.endpoint, "--model", tmp_path / "step_1", "--step", 2, "--run", "again").json
    assert step_of(resumed["version"]) == ("run", 2)
    shadowed = listed["versions"][1]["version"]
    assert take("--version", "run@2") == resumed["version"]
    assert_serves(engine, checkpoint("qwen3", "a"), RECIPE)
    assert take("--version", shadowed["digest"][:12]) == shadowed
    assert_serves(engine, checkpoint("qwen3", "b"), RECIPE)
    gone = refused(program, engine, "reload", "--publisher", publisher.endpoint, "--version", "run@3")
    assert gone["code"] == "not_found" and "run@3 is not offered" in gone["message"]
    assert program.refused("publish", "--to", publisher.endpoint, "--model", checkpoint("qwen3", "b"), "--step", 9)[
        "code"] == "permission_denied"


def test_an_engine_goes_back_without_any_publisher(program, start, checkpoint, assert_serves):
    engine = start("serve", "--model", checkpoint("qwen3", "a"), "--quantization", RECIPE, "--tp", 2, "--keep-previous")
    first = engine.version
    none = refused(program, engine, "rollback")
    assert none["code"] == "failed_precondition" and "no previous version yet" in none["message"]
    publisher = start("publish", "--model", checkpoint("qwen3", "b"), "--lineage", "run", "--step", 7)
    second = program.reload(engine, "--publisher", publisher.endpoint)["version"]
    publisher.kill()
    assert program.status(engine)["previous"] == first
    digests = [rank["served_digest"] for rank in program.status(engine)["ranks"]]
    for expected, letter in ((first, "a"), (second, "b"), (first, "a")):
        done = program.run("rollback", "--engine", engine.endpoint, "--all-or-none").json["engines"][0]
        assert done["version"] == expected and done["report"]["channel"]["name"] == "previous"
        assert_serves(engine, checkpoint("qwen3", letter), RECIPE)
    assert [rank["served_digest"] for rank in program.status(engine)["ranks"]] != digests


def test_a_rank_that_was_started_anew_has_nothing_to_go_back_to(program, start, checkpoint, assert_serves):
    engine = start("serve", "--model", checkpoint("qwen3", "a"), "--quantization", RECIPE, "--tp", 2, "--keep-previous")
    second = program.reload(engine, "--model", checkpoint("qwen3", "b"))["version"]
    os.kill(program.status(engine)["pids"][1], 9)
    gone = refused(program, engine, "rollback")
    assert gone["code"] == "failed_precondition" and ": this rank has no previous version: its process" in gone["message"]
    assert program.status(engine)["version"] == second
    assert_serves(engine, checkpoint("qwen3", "b"), RECIPE)


def test_generate_is_refused_or_waits_where_its_version_is_not_served_yet(program, start, checkpoint):
    publisher = start("publish", "--model", checkpoint("qwen3", "b"), "--lineage", "run", "--step", 7)
    engine = start("serve", "--model", checkpoint("qwen3", "a"))
    ask = ("generate", "--engine", engine.endpoint, "--tokens", "3,11,4", "--least-version", "run@7")
    early = program.refused(*ask)
    assert early["code"] == "failed_precondition" and "expected run@7 or a later version" in early["message"]
    late = program.refused(*ask, "--wait", "--timeout", "0.2")
    assert late["code"] == "deadline_exceeded" and "expected run@7" in late["message"]
    waiting = program.start(*ask, "--wait")
    taken = program.reload(engine, "--publisher", publisher.endpoint)["version"]
    assert program.finish(waiting).json["spans"][0]["version"] == taken


def test_what_is_kept_needs_what_it_says(program):
    assert program.refused("publish", "--to", "tcp://127.0.0.1:1", "--model", "x", status=2)["message"] == "--to: expected --step, got none"
    assert "--keep-previous: expected --commit staged" in program.refused(
        "serve", "--model", "x", "--keep-previous", "--commit", "undo", status=2)["message"]
