"""The subcommands around a running engine and a publisher keep to docs/cli.md: flags, fields, exit statuses, readiness.
What the bytes must be, tests/end_to_end shows."""

import re
import subprocess

import pytest

VERSION_FIELDS = {"lineage", "step", "digest"}


def test_readiness_of_an_engine(engine, program, folders):
    ready = engine.ready
    assert list(ready)[:2] == ["ready", "endpoint"]
    assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", ready["endpoint"])
    assert (ready["tp"], ready["quantization"], ready["pid"]) == (1, "fp8_per_channel", engine.process.pid)
    assert len(ready["pids"]) == 1
    digest = program.run("inspect", folders["a"]).json["digest"]
    assert ready["version"] == {"lineage": "qwen3_a", "step": 0, "digest": digest}


def test_status_of_an_engine_that_was_not_reloaded_yet(program, start, folders):
    daemon = start("serve", "--model", folders["a"])
    status = program.status(daemon)
    assert (status["state"], status["version"], status["torn"]) == ("serving", daemon.version, None)
    assert [rank["pid"] for rank in status["ranks"]] == daemon.pids == status["pids"]
    assert status["channel"] is None and status["last_error"] is None
    started = status["last_report"]  # the cold start's
    assert started["version"] == daemon.version and started["channel"]["name"] == "path" and started["bytes"] > 0
    assert started["ranks"] == status["ranks"]
    daemon.stop()


def test_readiness_of_a_publisher(publisher, program, folders):
    inspected = program.run("inspect", folders["b"]).json
    ready = dict(publisher.ready)
    assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", ready.pop("endpoint"))
    assert ready == {"ready": True, "pids": [publisher.process.pid], "mode": "snapshot", "bytes": inspected["bytes"],
                     "part": {"rank": 0, "ranks": 1}, "run": None, "noise": None, "metrics": None, "tensors": len(inspected["tensors"]),
                     "version": {"lineage": "run-17", "step": 42, "digest": inspected["digest"]}}


def test_status_of_a_publisher(publisher, program):
    status = program.run("status", "--publisher", publisher.endpoint).json
    ready = publisher.ready
    assert status["state"] == "publishing" and status["readers"] == 0 and status["run"] is None
    kept = program.run("versions", "--publisher", publisher.endpoint).json
    assert status["memory_bytes"] == kept["memory_bytes"] >= status["bytes"]
    assert f"0 readers, {kept['memory_bytes']} bytes of memory" in program.text("status", "--publisher", publisher.endpoint)
    assert {key: status[key] for key in ("version", "mode", "pids", "tensors", "bytes")} == {
        key: ready[key] for key in ("version", "mode", "pids", "tensors", "bytes")}


def test_every_channel_that_a_build_has_is_listed_unless_it_stays_in_its_process(publisher, program):
    channels = program.run("probe", "--publisher", publisher.endpoint).json["channels"]
    said = program.refused("reload", "--engine", "tcp://127.0.0.1:9", "--channel", "pigeon", status=2)["message"]
    listed = said.partition("expected one of ")[2].partition(", got")[0].split(", ")
    assert ["inproc", *listed] == [channel["name"] for channel in channels]


def test_reload_and_what_is_said_of_it(engine, publisher, program, folders):
    served = program.run("verify", "--engine", engine.endpoint, "--model", folders["b"], status=1)
    assert not served.json["equal"] and served.json["differences"] and "does not serve" in served.errors

    before = program.status(engine)["version"]
    outcome = program.reload(engine, "--publisher", publisher.endpoint, "--version", "run-17@42")
    assert outcome["endpoint"] == engine.endpoint
    assert outcome["ok"] and outcome["error"] is None and outcome["version"] == publisher.version
    assert outcome["previous"] == before
    report = outcome["report"]
    assert report["channel"]["name"] == "shm" and report["channel"]["gb_per_s"] > 0
    assert 0 < report["bytes"] == report["bytes_total"] and report["layers"] > 0 and report["total_ms"] > 0
    assert {"receive", "layer_buffer", "materialize", "fuse_and_shard", "quantize", "verify", "commit"} <= set(
        report["stage_ms"])
    assert report["out_of_order"] == [] and report["version"] == publisher.version

    status = program.status(engine)
    assert status["state"] == "serving" and status["version"] == publisher.version and status["last_error"] is None
    assert status["last_report"] == report and status["channel"] == report["channel"]
    assert status["ranks"][0]["served_digest"] == report["ranks"][0]["served_digest"]
    equal = program.run("verify", "--engine", engine.endpoint, "--model", folders["b"]).json
    assert equal["equal"] and equal["differences"] == [] and equal["bytes"] > 0


def test_a_reload_that_fails_leaves_what_was_served(engine, program, publisher, tmp_path):
    before = program.status(engine)["version"]
    outcome = program.reload(engine, "--model", tmp_path / "nowhere", status=1)
    assert not outcome["ok"] and outcome["error"]["code"] == "not_found" and outcome["version"] == before
    assert program.status(engine)["last_error"] == outcome["error"]
    outcome = program.reload(engine, "--publisher", publisher.endpoint, "--version", "run-18@1", status=1)
    assert "run-17@42" in outcome["error"]["message"]
    assert program.status(engine)["version"] == before


def test_a_reload_of_two_engines_says_what_each_did(engine, publisher, program):
    gone = "tcp://127.0.0.1:9"
    outcome = program.run("reload", "--engine", f"{engine.endpoint},{gone}", "--publisher", publisher.endpoint, status=1)
    first, second = outcome.json["engines"]
    assert outcome.json["ok"] is False and first["ok"] and not second["ok"]
    assert second["error"]["code"] == "unavailable" and gone in second["error"]["message"]
    assert second["version"] is None and second["report"] is None
    assert gone in outcome.errors


def test_generate(engine, program):
    greedy = program.generate(engine, [3, 11, 4], "--max-new", 5, "--logprobs")
    assert len(greedy["tokens"]) == len(greedy["logprobs"]) == 5 and greedy["finish"] == "length"
    assert [(span["start"], span["end"]) for span in greedy["spans"]] == [(0, 5)]
    assert set(greedy["spans"][0]["version"]) == VERSION_FIELDS
    repeated = program.generate(engine, [3, 11, 4], "--max-new", 5, "--repeat", 2)["answers"]
    assert [answer["tokens"] for answer in repeated] == [greedy["tokens"]] * 2 and "logprobs" not in repeated[0]
    hot = [program.generate(engine, [3, 11, 4], "--temperature", 5, "--seed", seed)["tokens"] for seed in (1, 2, 1)]
    assert hot[0] == hot[2] != hot[1]
    assert program.refused("generate", "--engine", engine.endpoint, "--tokens", "5000")["code"] == "invalid_argument"


def test_an_engine_starts_from_what_another_exported(engine, program, start, tmp_path):
    said = program.export(engine, tmp_path / "out")
    assert said["files"] == ["model-rank-0-part-0.safetensors"] and said["bytes"] > 0
    assert said["version"] == program.status(engine)["version"]
    again = start("serve", "--model", tmp_path / "out", "--quantization", "fp8_per_channel")
    ranks = [program.status(one)["ranks"][0]["served_digest"] for one in (engine, again)]
    assert ranks[0] == ranks[1]
    prompt = [9, 8, 7]
    assert program.generate(engine, prompt)["tokens"] == program.generate(again, prompt)["tokens"]
    again.stop()


def test_text_for_people(engine, publisher, program):
    def text(*arguments):
        return subprocess.run([program.path, *map(str, arguments)], capture_output=True, text=True, check=True).stdout

    assert "serves run-17@42:" in text("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint)
    assert text("status", "--engine", engine.endpoint).startswith("serving run-17@42:")
    assert "run-17@42:" in text("status", "--publisher", publisher.endpoint)
    assert "(length)" in text("generate", "--engine", engine.endpoint, "--tokens", "1,2", "--max-new", 2)


@pytest.mark.parametrize("bind, bound", [("tcp://localhost:0", "tcp://127.0.0.1:"), ("tcp://[::1]:0", "tcp://[::1]:")])
@pytest.mark.parametrize("channel", ["zmq", "ucx", "shm"])
def test_loopback_by_other_names(bind, bound, channel, program, start, folders):
    daemon = start("serve", "--model", folders["a"], "--bind", bind)
    trainer = start("publish", "--model", folders["b"], "--bind", bind)
    assert daemon.endpoint.startswith(bound) and trainer.endpoint.startswith(bound)
    report = program.reload(daemon, "--publisher", trainer.endpoint, "--channel", channel)["report"]
    assert report["channel"]["name"] == channel
    for process in (trainer, daemon):
        process.stop()
