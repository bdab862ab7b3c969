"""layercast doctor on this machine, and with real engines and publishers that are well, gone, empty or locked."""

import json

import pytest

NOBODY = "tcp://127.0.0.1:9"


@pytest.fixture(scope="module")
def seen(program, engine, publisher):
    return program.run("doctor", "--engine", engine.endpoint, "--publisher", publisher.endpoint).json


def test_it_tells_what_the_machine_has_and_measures(seen):
    machine, measured = seen["machine"], seen["measured"]
    assert machine["cpus"] >= 1 and machine["memory"] >= machine["available"] > 0 and machine["instruction_set"]
    assert 1 <= measured["threads"] <= machine["cpus"]
    for work in ("copy", "digest"):
        assert measured[work]["one_thread_gb_per_s"] > 0 and measured[work]["all_threads_gb_per_s"] > 0
    channels = {channel["name"]: channel for channel in measured["channels"]}
    assert channels["shm"]["gb_per_s"] > 0 and channels["zmq"]["gb_per_s"] > 0 and "inproc" not in channels


def test_each_library_has_a_version_or_the_reason_why_it_has_none(seen):
    assert [library["library"] for library in seen["libraries"]] == ["UCX", "NCCL", "ZeroMQ"]
    for library in seen["libraries"]:
        assert (library["version"] is None) != (library["why_not"] is None)
        assert library["version"] is None or library["version"][0].isdigit()


def test_it_tells_what_a_publisher_would_be_taken_from_by_and_for_how_long(seen, publisher):
    looked = seen["publisher"]
    assert looked["reachable"] and looked["same_host"] and looked["channel"] == "shm"
    assert looked["version"] == publisher.version and looked["bytes"] == publisher.ready["bytes"]
    assert looked["seconds"] > 0


def test_it_tells_what_an_engine_does(seen, engine):
    looked = seen["engine"]
    assert looked["reachable"] and looked["state"] == "serving" and looked["version"] == engine.version


def test_nothing_that_only_slows_a_sync_down_is_a_failure(seen):
    assert not any(advice["fails"] for advice in seen["advice"])
    assert all(advice["text"] for advice in seen["advice"]) and "error" not in seen


def test_for_people_it_is_a_table_and_sentences(program, seen):
    outcome = program.for_people("doctor")
    assert outcome.errors == "" and outcome.output.startswith("processor ")
    assert all(len(line) <= 160 for line in outcome.output.splitlines())
    words = " ".join(outcome.output.split())
    for advice in seen["advice"]:
        if advice["name"] not in ("last_error", "slow_channel"):
            assert " ".join(advice["text"].split()) in words


@pytest.mark.parametrize("flag, name", [("--engine", "engine_unreachable"), ("--publisher", "publisher_unreachable")])
def test_one_that_nobody_answers_at_fails_a_sync(flag, name, program):
    outcome = program.run("doctor", flag, NOBODY, "--timeout", 10, status=1)
    assert outcome.json["error"]["code"] == "failed_precondition"
    (fails,) = [advice for advice in outcome.json["advice"] if advice["fails"]]
    assert fails["name"] == name and NOBODY in fails["text"] and f"layercast status {flag} {NOBODY}" in fails["command"]
    assert fails["text"] in outcome.errors


def test_an_engine_asked_for_as_a_publisher_is_no_publisher(program, engine):
    fails = program.run("doctor", "--publisher", engine.endpoint, "--timeout", 10, status=1).json
    assert [advice["name"].partition("_")[0] for advice in fails["advice"] if advice["fails"]] == ["publisher"]


def test_a_publisher_without_a_version_fails_a_sync(program, start, tmp_path):
    empty = start("publish", "--watch", tmp_path)
    seen = program.run("doctor", "--publisher", empty.endpoint, status=1).json
    (fails,) = [advice for advice in seen["advice"] if advice["fails"]]
    assert fails["name"] == "no_version" and empty.endpoint in fails["text"]


def test_keys_that_do_not_fit_fail_a_sync(program, start, folders, tmp_path):
    for secret in ("job", "other"):
        program.run("keygen", "--secret", tmp_path / secret)
    locked = start("publish", "--model", folders["b"], "--secret", tmp_path / "job")
    asked = ("doctor", "--publisher", locked.endpoint, "--secret", tmp_path / "other", "--timeout", 10)
    (fails,) = [advice for advice in program.run(*asked, status=1).json["advice"] if advice["fails"]]
    assert fails["name"] == "publisher_keys" and "layercast keygen" in fails["command"]


def test_an_engine_that_answers_something_else_is_told_as_one(program, fake):
    outcome = program.run("doctor", "--engine", fake({"state": 7}), status=1)
    (fails,) = [advice for advice in outcome.json["advice"] if advice["fails"]]
    assert fails["name"] == "engine" and "cannot be read" in fails["text"]
    assert json.loads(outcome.output)["engine"]["reachable"] is False
