"""Which data channel a reload takes, what is said of it, and what becomes of one that is asked for and is not there."""

import shutil

import pytest

from program import Program


def test_the_choice_its_reason_and_its_rates_are_in_reports_and_status(program, start, checkpoint, assert_serves):
    engine = start("serve", "--model", checkpoint("llama", "a"), "--quantization", "none")
    publisher = start("publish", "--model", checkpoint("llama", "b"))

    probe = program.run("probe", "--publisher", publisher.endpoint).json
    channels = {channel["name"]: channel for channel in probe["channels"]}
    assert probe["same_host"] and probe["channel"] == "shm" and "own memory" in probe["reason"]
    assert not channels["inproc"]["usable"] and "another process" in channels["inproc"]["reason"]
    assert channels["shm"]["attaches"] and not channels["zmq"]["attaches"]
    assert all(channel["gb_per_s"] > 0 for channel in probe["channels"] if channel["usable"])
    assert program.run("status", "--publisher", publisher.endpoint).json["readers"] == 0

    channel = program.reload(engine, "--publisher", publisher.endpoint)["report"]["channel"]
    assert channel["name"] == "shm" and channel["reason"] == probe["reason"]
    assert channel["gb_per_s"] > 0 and channel["probed_gb_per_s"] > 0 and channel["warning"] is None
    assert program.run("status", "--engine", engine.endpoint).json["channel"] == channel
    assert_serves(engine, checkpoint("llama", "b"), "none")


@pytest.fixture
def mixed(program, tmp_path):
    """A program whose engines' second ranks take zmq."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    shutil.copy(program.path, folder)
    rank = folder / "layercast-rank"
    rank.write_text(f"""#!/bin/sh
options=$(printf %s "$2" | sed 's/"channel":""/"channel":"zmq"/')
case "$1 $*" in "--options "*" --tp-rank 1 "*) shift 2; set -- --options "$options" "$@" ;; esac
exec {program.path.with_name("layercast-rank")} "$@"
""")
    rank.chmod(0o755)
    return Program(folder / program.path.name, folder)


def test_ranks_that_took_different_channels_are_each_said(mixed, program, start, checkpoint, assert_serves):
    engine = mixed.daemon("serve", "--model", checkpoint("llama", "a"), "--tp", 2, "--quantization", "none")
    try:
        publisher = start("publish", "--model", checkpoint("llama", "b"))
        report = program.reload(engine, "--publisher", publisher.endpoint)["report"]
        channel = report["channel"]
        first, second = channel["ranks"]
        assert (first["rank"], first["name"]) == (0, "shm") and "own memory" in first["reason"]
        assert (second["rank"], second["name"], second["reason"]) == (1, "zmq", "it was asked for")
        assert first["gb_per_s"] > 0 and second["gb_per_s"] > 0
        assert channel["name"] == "shm, zmq" == report["publishers"][0]["channel"]
        assert channel["gb_per_s"] == min(first["gb_per_s"], second["gb_per_s"])
        assert program.status(engine)["channel"] == channel
        said = program.text("status", "--engine", engine.endpoint)
        assert "last channel of rank 0 shm" in said and "last channel of rank 1 zmq" in said
        said = program.text("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint)
        assert "bytes over shm, zmq, its slowest rank at" in said and "rank 1 over zmq at" in said
        assert_serves(engine, checkpoint("llama", "b"), "none")

        # What is asked for, all take.
        one = program.reload(engine, "--publisher", publisher.endpoint, "--channel", "zmq")["report"]["channel"]
        assert one["name"] == "zmq" and "ranks" not in one
    finally:
        engine.kill()


def test_what_is_asked_for_is_taken_or_an_error(program, start, checkpoint, assert_serves):
    engine = start("serve", "--model", checkpoint("llama", "a"), "--quantization", "none", "--channel", "zmq")
    everything = start("publish", "--model", checkpoint("llama", "b"))
    forced = program.reload(engine, "--publisher", everything.endpoint)["report"]["channel"]
    assert (forced["name"], forced["reason"]) == ("zmq", "it was asked for")
    assert program.reload(engine, "--publisher", everything.endpoint, "--channel", "shm")["report"]["channel"]["name"] == "shm"

    only_zmq = start("publish", "--model", checkpoint("llama", "a"), "--channel", "zmq")
    assert [c["name"] for c in program.run("probe", "--publisher", only_zmq.endpoint).json["channels"] if c["usable"]] == ["zmq"]
    refused = program.run("reload", "--engine", engine.endpoint, "--publisher", only_zmq.endpoint, "--channel", "shm", status=1)
    done = refused.json["engines"][0]
    assert done["error"]["code"] == "unsupported" and "shm: the publisher does not offer it" in done["error"]["message"]
    status = program.status(engine)
    assert done["report"] is None and status["last_report"] is None and status["channel"] is None  # nothing began
    assert status["last_error"] == done["error"]
    assert_serves(engine, checkpoint("llama", "b"), "none")


def test_a_name_that_no_channel_has_is_refused_at_once(program, checkpoint):
    for command in (["serve", "--model", checkpoint("llama", "a"), "--channel", "pigeon"],
                    ["publish", "--model", checkpoint("llama", "a"), "--channel", "zmq,pigeon"]):
        assert "expected one of shm, " in program.run(*command, status=2).errors
