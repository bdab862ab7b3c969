"""Versions that outlive their publisher: it writes them into a store, and engines take them from there."""

import os
import shutil
import subprocess

import pytest

RECIPE = "fp8_per_channel"


def save(source, folder):
    """As a trainer does that says when it is done."""
    shutil.copytree(source, folder)
    (folder / "STABLE").touch()


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def runs(tmp_path, checkpoint):
    """Steps 1 and 2 of a trainer: a and b."""
    for step, letter in ((1, "a"), (2, "b")):
        save(checkpoint("qwen3", letter), tmp_path / "runs" / f"step_{step}")
    return tmp_path / "runs"


@pytest.fixture
def publish(start, runs, store):
    """Starts the publisher, or starts it anew."""
    return lambda *more: start("publish", "--watch", runs, "--lineage", "run", "--keep", 5, "--store", store,
                               "--allow-path", runs, *more)


def stored(program, publisher, version):
    """Waits until the version is in the store."""
    listed = program.run("versions", "wait", "--publisher", publisher.endpoint, "--version", version).json
    return {one["version"]["step"]: one["version"] for one in listed["versions"]}


def in_store(program, store):
    return program.run("versions", "--store", store).json["versions"]


def test_an_engine_takes_the_very_version_that_a_killed_publisher_had(program, start, publish, store, checkpoint,
                                                                      assert_serves):
    publisher = publish()
    versions = stored(program, publisher, "run@2")
    publisher.kill()
    assert [one["version"] for one in in_store(program, store)] == [versions[1], versions[2]]
    engines = [start("serve", "--model", checkpoint("qwen3", "a"), "--quantization", RECIPE, "--tp", tp)
               for tp in (1, 2)]

    def take(*arguments):
        both = ",".join(engine.endpoint for engine in engines)
        done = program.run("reload", "--engine", both, "--store", store, "--all-or-none", *arguments).json["engines"]
        assert {one["report"]["channel"]["name"] for one in done} == {"store"}
        assert done[0]["version"] == done[1]["version"]
        return done[0]["version"]

    for arguments, step, letter in ((["--latest"], 2, "b"), (["--version", "run@1"], 1, "a"),
                                    (["--version", versions[2]["digest"][:10]], 2, "b")):
        assert take(*arguments) == versions[step]
        for engine in engines:
            assert_serves(engine, checkpoint("qwen3", letter), RECIPE)
    gone = program.run("reload", "--engine", engines[0].endpoint, "--store", store, "--version", "run@9", status=1).json
    assert gone["engines"][0]["error"]["code"] == "not_found"
    assert "at step 9; it has: run@1" in gone["engines"][0]["error"]["message"]


def test_an_engine_starts_from_a_store(program, start, publish, store, checkpoint, assert_serves):
    publisher = publish()
    versions = stored(program, publisher, "run@2")
    publisher.kill()
    engine = start("serve", "--model", checkpoint("qwen3", "a"), "--load-format", "remote", "--store", store,
                   "--quantization", "fp8_per_block", "--tp", 2)
    assert engine.version == versions[2]
    assert_serves(engine, checkpoint("qwen3", "b"), "fp8_per_block")
    older = start("serve", "--model", checkpoint("qwen3", "a"), "--load-format", "remote", "--store", store,
                  "--version", "run@1")
    assert older.version == versions[1]
    assert_serves(older, checkpoint("qwen3", "a"), "none")


def test_a_publisher_goes_on_where_it_was_killed(program, start, publish, store, runs, checkpoint, assert_serves):
    first = publish()
    versions = stored(program, first, "run@2")
    first.kill()
    publisher = publish()
    kept = program.run("versions", "--publisher", publisher.endpoint).json["versions"]
    assert [(one["version"], one["durable"]) for one in kept] == [(versions[1], "stored"), (versions[2], "stored")]
    engine = start("serve", "--model", checkpoint("qwen3", "b"), "--quantization", RECIPE, "--tp", 2)
    taken = program.reload(engine, "--publisher", publisher.endpoint, "--version", "run@1")["version"]
    assert taken == versions[1]
    assert_serves(engine, checkpoint("qwen3", "a"), RECIPE)
    late = program.refused("publish", "--to", publisher.endpoint, "--model", runs / "step_2", "--step", 1)
    assert "expected a step after 2, got 1" in late["message"]
    resumed = program.run("publish", "--to", publisher.endpoint, "--model", runs / "step_1", "--step", 2, "--run",
                          "again").json["version"]
    stored(program, publisher, f"run@2:{resumed['digest'][:8]}")
    publisher.stop()
    assert [one["shadowed"] for one in in_store(program, store)] == [False, True, False]
    assert program.reload(engine, "--store", store, "--version", "run@2")["version"] == resumed
    assert_serves(engine, checkpoint("qwen3", "a"), RECIPE)
    assert program.reload(engine, "--store", store, "--version", versions[2]["digest"])["version"] == versions[2]
    assert_serves(engine, checkpoint("qwen3", "b"), RECIPE)
    assert program.reload(engine, "--store", store, "--latest")["version"] == resumed


def test_a_publisher_that_ends_writes_first_what_waits(program, start, store, checkpoint):
    start("publish", "--model", checkpoint("qwen3", "a"), "--lineage", "run", "--step", 3, "--store", store).stop(timeout=60)
    assert [one["version"]["step"] for one in in_store(program, store)] == [3]
    again = start("publish", "--model", checkpoint("qwen3", "a"), "--lineage", "run", "--step", 3, "--store", store)
    assert again.version == in_store(program, store)[0]["version"]  # the same command: it is the same version
    other = program.run("publish", "--model", checkpoint("qwen3", "b"), "--lineage", "run", "--step", 3, "--store", store,
                        status=1).json["error"]
    assert "the store has run@3" in other["message"]


@pytest.mark.parametrize("step", [9, 120])
def test_a_store_has_no_version_in_part_whenever_its_publisher_is_killed(step, program, publish, start, store, runs,
                                                                       checkpoint):
    dying = [program.path, "publish", "--watch", runs, "--lineage", "run", "--store", store]
    killed = subprocess.run(dying, env=os.environ | {"LAYERCAST_FAILPOINTS": f"publisher:store.step=kill@{step}"},
                            capture_output=True, check=False, timeout=60)
    assert killed.returncode == -9, killed
    checked = program.run("versions", "check", "--store", store).json
    assert checked["ok"]
    publisher = publish()
    versions = stored(program, publisher, "run@2")
    assert [one["version"] for one in in_store(program, store)] == list(versions.values())
    assert program.run("versions", "check", "--store", store).json["ok"]
    engine = start("serve", "--model", checkpoint("qwen3", "a"))
    assert program.reload(engine, "--store", store)["version"] == versions[2]


def test_bytes_that_are_not_those_that_were_published_are_served_by_nobody(program, start, publish, store, checkpoint):
    publisher = publish()
    stored(program, publisher, "run@2")
    publisher.kill()
    largest = max((store / "objects").rglob("*"), key=lambda path: path.stat().st_size)
    with open(largest, "r+b") as file:
        file.seek(5000)
        byte = file.read(1)
        file.seek(5000)
        file.write(bytes([byte[0] ^ 1]))
    engine = start("serve", "--model", checkpoint("qwen3", "a"), "--quantization", RECIPE, "--tp", 2)
    refused = [one["version"]["step"] for one in in_store(program, store)
               if program.run("reload", "--engine", engine.endpoint, "--store", store, "--version",
                              one["version"]["digest"], status=None).json["engines"][0]["error"]]
    assert refused
    error = program.status(engine)["last_error"]
    checked = program.run("versions", "check", "--store", store, status=1).json
    wrong = [one for one in checked["versions"] if one["wrong"]]
    assert not checked["ok"] and len(wrong) == len(refused) and largest.name in wrong[0]["wrong"][0]
    assert error is None or (error["code"] == "corrupt" and largest.name in error["message"])


def test_a_stream_is_in_the_store_once_an_engine_has_taken_it(program, start, store, checkpoint, assert_serves):
    b = checkpoint("qwen3", "b")
    publisher = start("publish", "--model", b, "--mode", "stream", "--lineage", "run", "--step", 4, "--store", store)
    [listed] = program.run("versions", "--publisher", publisher.endpoint).json["versions"]
    assert listed["durable"] == "waiting" and in_store(program, store) == []
    taker = start("serve", "--model", checkpoint("qwen3", "a"), "--tp", 2)
    program.reload(taker, "--publisher", publisher.endpoint)
    program.run("versions", "wait", "--publisher", publisher.endpoint, "--version", "run@4")
    publisher.kill()
    assert program.run("versions", "check", "--store", store).json["ok"]
    later = start("serve", "--model", checkpoint("qwen3", "a"), "--quantization", RECIPE)
    assert program.reload(later, "--store", store)["version"]["step"] == 4
    assert_serves(later, b, RECIPE)


@pytest.mark.parametrize("mode", ["snapshot", "stream"])
def test_parts_of_a_sharded_trainer_are_a_version_of_the_store(mode, program, start, store, checkpoint, assert_serves):
    a, b = checkpoint("qwen3", "a"), checkpoint("qwen3", "b")
    ranks = [start("publish", "--model", b, "--part", f"{rank}/3", "--mode", mode, "--lineage", "run", "--step", 7, "--run",
                   "job-7", "--store", store) for rank in range(3)]
    engine = start("serve", "--model", a, "--quantization", "fp8_per_tensor", "--tp", 2)
    live = program.reload(engine, "--publisher", ",".join(rank.endpoint for rank in ranks))["version"]
    for rank in ranks:
        program.run("versions", "wait", "--publisher", rank.endpoint, "--version", "run@7")
        rank.kill()
    [stored_version] = in_store(program, store)
    assert stored_version["version"]["step"] == 7 and stored_version["run"] == "job-7"
    assert mode == "stream" or stored_version["version"] == live
    assert program.run("versions", "check", "--store", store).json["ok"]
    program.reload(engine, "--model", a)
    assert program.reload(engine, "--store", store)["version"] == stored_version["version"]
    assert_serves(engine, b, "fp8_per_tensor")


def test_a_store_keeps_to_its_limits_and_its_pins(program, start, store, runs, checkpoint):
    publisher = start("publish", "--watch", runs, "--lineage", "run", "--store", store, "--store-keep", 1, "--allow-path",
                      runs)
    stored(program, publisher, "run@2")
    assert [one["version"]["step"] for one in in_store(program, store)] == [2]
    pinned = program.run("versions", "pin", "--store", store, "--version", "run@2").json["versions"]
    assert [one["pinned"] for one in pinned] == [True]
    error = program.refused("versions", "evict", "--store", store, "--version", "run@2")
    assert error["code"] == "failed_precondition" and "is pinned" in error["message"]
    program.run("publish", "--to", publisher.endpoint, "--model", runs / "step_1", "--step", 3)
    stored(program, publisher, "run@3")
    assert [one["version"]["step"] for one in in_store(program, store)] == [2, 3]
    left = program.run("versions", "evict", "--store", store, "--version", "run@3").json["versions"]
    assert [one["version"]["step"] for one in left] == [2]


def test_what_a_store_does_not_take_is_refused(program, store, checkpoint, tmp_path):
    model = checkpoint("qwen3", "a")
    part = program.refused("publish", "--model", model, "--store", store, "--part", "0/2")
    assert part["code"] == "invalid_argument" and "expected the name of the trainer's run" in part["message"]
    assert "expected a store, or an empty folder" in program.refused("publish", "--model", model, "--store", model)["message"]
    assert program.refused("versions", "--store", tmp_path / "none")["code"] == "not_found"
    assert program.refused("versions", status=2)["message"] == "expected --publisher or --store, got neither"
    assert "are for --publisher and --store" in program.refused(
        "reload", "--engine", "tcp://127.0.0.1:1", "--latest", status=2)["message"]
