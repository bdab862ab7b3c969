"""The subcommands around a running engine and a publisher keep to docs/cli.md: flags, fields, exit statuses, readiness.
What the bytes must be, tests/end_to_end shows."""

import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

import program as layercast_program

VERSION_FIELDS = {"lineage", "step", "digest"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def start(program):
    running = []

    def start(*arguments):
        running.append(program.daemon(*arguments))
        return running[-1]

    yield start
    for daemon in running:
        daemon.kill()


@pytest.fixture(scope="module")
def folders(checkpoint):
    return {version: checkpoint("qwen3", version) for version in "ab"}


@pytest.fixture(scope="module")
def engine(start, folders):
    return start("serve", "--model", folders["a"], "--tp", 1, "--quantization", "fp8_per_channel")


@pytest.fixture(scope="module")
def publisher(start, folders):
    return start("publish", "--checkpoint", folders["b"], "--lineage", "run-17", "--step", 42)


def refused(program, *arguments, status=1):
    outcome = program.run(*arguments, status=status)
    error = outcome.json["error"]
    assert error["message"] in outcome.errors
    return error


def test_readiness_of_an_engine(engine, program, folders):
    ready = engine.ready
    assert list(ready)[:2] == ["ready", "endpoint"]
    assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", ready["endpoint"])
    assert (ready["tp"], ready["quantization"], ready["pid"]) == (1, "fp8_per_channel", engine.process.pid)
    assert len(ready["pids"]) == 1
    digest = program.run("inspect", folders["a"]).json["digest"]
    assert ready["version"] == {"lineage": "qwen3_a", "step": 0, "digest": digest}


def test_readiness_of_a_publisher(publisher, program, folders):
    inspected = program.run("inspect", folders["b"]).json
    ready = dict(publisher.ready)
    assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", ready.pop("endpoint"))
    assert ready == {"ready": True, "pids": [publisher.process.pid], "mode": "snapshot", "bytes": inspected["bytes"],
                     "part": {"rank": 0, "ranks": 1}, "tensors": len(inspected["tensors"]),
                     "version": {"lineage": "run-17", "step": 42, "digest": inspected["digest"]}}


def test_status_of_a_publisher(publisher, program):
    status = program.run("status", "--publisher", publisher.endpoint).json
    ready = publisher.ready
    assert status["state"] == "publishing" and status["readers"] == 0
    assert {key: status[key] for key in ("version", "mode", "pids", "tensors", "bytes")} == {
        key: ready[key] for key in ("version", "mode", "pids", "tensors", "bytes")}


def test_reload_and_what_is_said_of_it(engine, publisher, program, folders):
    served = program.run("verify", "--engine", engine.endpoint, "--against", folders["b"], status=1)
    assert not served.json["equal"] and served.json["differences"] and "does not serve" in served.errors

    outcome = program.reload(engine, "--publisher", publisher.endpoint, "--version", "run-17@42")
    assert outcome["endpoint"] == engine.endpoint
    assert outcome["ok"] and outcome["error"] is None and outcome["version"] == publisher.version
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
    equal = program.run("verify", "--engine", engine.endpoint, "--against", folders["b"]).json
    assert equal["equal"] and equal["differences"] == [] and equal["bytes"] > 0


def test_ranks_that_cannot_start_say_why(program, folders, monkeypatch):
    monkeypatch.setenv("LAYERCAST_FAILPOINTS", "what")
    error = program.run("serve", "--model", folders["a"], "--tp", 2, status=1).json["error"]
    assert error["code"] == "invalid_argument"
    said = [f"rank {rank}: LAYERCAST_FAILPOINTS: expected [role:]name=" in error["message"] for rank in range(2)]
    assert any(said) and "got 'what'" in error["message"]  # whichever said so first


@pytest.mark.parametrize("change, flags, words", [({}, ["--tp", 3], "is not divisible by tp_size 3"),
                                                  ({"architectures": []}, [], "has no `architectures`"),
                                                  ({"architectures": ["Qwen3"]}, [], "[Qwen3] are not supported")])
def test_a_model_that_no_rank_could_build_is_refused_before_any_is_started(change, flags, words, program, tmp_path, folders):
    config = json.loads((folders["a"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    outcome = program.run("serve", "--model", tmp_path, *flags, status=1)
    message = outcome.json["error"]["message"]
    assert message.startswith(f"{tmp_path}: ") and words in message
    assert len(outcome.errors.splitlines()) == 1  # and no process says it again


def test_a_reload_that_fails_leaves_what_was_served(engine, program, publisher, tmp_path):
    before = program.status(engine)["version"]
    outcome = program.reload(engine, "--weights-path", tmp_path / "nowhere", status=1)
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
    assert refused(program, "generate", "--engine", engine.endpoint, "--tokens", "5000")["code"] == "invalid_argument"


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("what", ["serve", "publish"])
def test_a_signal_ends_everything_cleanly(what, number, start, folders):
    daemon = start(what, *(["--model"] if what == "serve" else ["--checkpoint"]), folders["a"])
    daemon.signal(number)
    assert daemon.process.wait(20) == 0
    layercast_program.wait_until(lambda: not any(map(layercast_program.is_running, daemon.pids)), 5, "outlived it")


@pytest.mark.parametrize("arguments", [
    ["publish"], ["publish", "--checkpoint", "x", "--nccl-fleet", "0"], ["publish", "--checkpoint", "x", "--nccl-fleet", "65"],
    ["publish", "--checkpoint", "x", "--step", "-1"], ["serve", "--model", "x", "--load-format", "dummy", "--seed", "-1"],
    ["publish", "--checkpoint", "x", "--mode", "push"], ["publish", "--checkpoint", "x", "--order", "odd"],
    ["publish", "--checkpoint", "x", "--order", "checkpoint"], ["serve"], ["serve", "--model", "x", "--tp", "0"],
    ["serve", "--model", "x", "--quantization", "fp7"], ["serve", "--model", "x", "--seed", "3"], ["reload"], ["status"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--publisher", "tcp://127.0.0.1:9", "--weights-path", "x"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--publisher", "tcp://127.0.0.1:9", "--version", "run-17"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--weights-path", "x", "--channel", "shm"],
    ["reload", "--engine", "tcp://127.0.0.1:9", "--publisher", ""], ["serve", "--model", "x", "--pp-layers", "1,1"],
    ["serve", "--model", "x", "--quantization", "fp8_per_channel", "--power-of-two-scales"],
    ["generate", "--engine", "tcp://127.0.0.1:9"], ["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "a,b"],
    ["verify", "--engine", "tcp://127.0.0.1:9"], ["export", "--engine", "tcp://127.0.0.1:9"]], ids=" ".join)
def test_wrong_usage(arguments, program):
    assert refused(program, *arguments, status=2)["code"] == "invalid_argument"


@pytest.mark.parametrize("arguments, words", [
    (["publish", "--checkpoint", "x", "--step", "-1"], "--step: expected a whole number from 0, got '-1'"),
    (["publish", "--checkpoint", "x", "--step", "1e3"], "--step: expected a whole number from 0, got '1e3'"),
    (["serve", "--model", "x", "--max-model-len", "0"], "--max-model-len: expected a whole number from 1, got '0'"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "3,x"], "--tokens: expected a whole number from 0, got 'x'"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", "3", "--temperature", "-1"],
     "--temperature: expected a number from 0, got '-1'"),
    (["reload", "--engine", "tcp://127.0.0.1:9", "--publisher", ""], "--publisher: expected a value, got an empty one"),
    (["reload", "--engine", "tcp://127.0.0.1:9", "--weights-path", ""], "--weights-path: expected a value"),
    (["publish", "--checkpoint", ""], "--checkpoint: expected a value, got an empty one"),
    (["publish", "--checkpoint", "x", "--channel", "zmq,,shm"],
     "--channel: expected names with commas between, got 'zmq,,shm'"),
    (["reload", "--engine", "tcp://127.0.0.1:9,", "--publisher", "tcp://127.0.0.1:9"],
     "--engine: expected names with commas between, got 'tcp://127.0.0.1:9,'"),
    (["publish", "--checkpoint", "x", "--stream-window", "5"], "--stream-window is for streams: say --mode stream"),
    (["serve", "--model", "x", "--secondary-weights", "draft.="], "expected PREFIX=PATH, got 'draft.='"),
    (["generate", "--engine", "tcp://127.0.0.1:9", "--tokens", ""], "--tokens: expected a whole number from 0, got ''"),
])
def test_a_number_that_is_none_is_shown_beside_what_was_expected(arguments, words, program):
    assert words in refused(program, *arguments, status=2)["message"]


def test_a_flag_that_is_misspelt_is_named_even_where_it_was_required(program):
    message = refused(program, "serve", "--modle", "x", status=2)["message"]
    assert "--model is required" in message and "'--modle'" in message


@pytest.mark.parametrize("arguments, code, words", [
    (["--bind", "tcp://127.0.0.1:99999"], "invalid_argument", "tcp://127.0.0.1:99999"),
    (["--max-model-len", "1000000"], "invalid_argument", "a sequence of 1000000 tokens: the model has "),
    (["--pp", "9"], "invalid_argument", "pp_size 9 exceeds num_hidden_layers"),
    (["--bind", "tcp://0.0.0.0:0"], "invalid_argument", "0.0.0.0"),
    (["--model", "/nowhere"], "not_found", "/nowhere"),
])
def test_an_engine_that_cannot_start_says_why(arguments, code, words, program, folders):
    model = [] if "--model" in arguments else ["--model", folders["a"]]
    error = refused(program, "serve", *model, *arguments)
    assert error["code"] == code and words in error["message"]


def test_a_publisher_that_cannot_start_says_why(program, folders, tmp_path):
    assert "0.0.0.0" in refused(program, "publish", "--checkpoint", folders["a"], "--bind", "tcp://0.0.0.0:0")["message"]
    assert refused(program, "publish", "--checkpoint", tmp_path)["code"] == "not_found"


def test_a_peer_that_is_not_there_is_named(program):
    for command in (["status", "--engine"], ["status", "--publisher"], ["generate", "--tokens", "1", "--engine"]):
        error = refused(program, *command, "tcp://127.0.0.1:9", "--timeout", "0.3")
        assert error["code"] in ("unavailable", "deadline_exceeded") and "tcp://127.0.0.1:9" in error["message"]


@pytest.mark.parametrize("command", [["status", "--engine"], ["status", "--publisher"]], ids=" ".join)
def test_a_peer_that_never_answers_is_asked_for_by_its_endpoint(program, command):
    error = refused(program, *command, "tcp://127.0.0.1:9")
    assert error["code"] == "unavailable"
    assert "it has never answered; does it run, and is this its endpoint?" in error["message"]


def test_an_engine_is_no_publisher_and_the_other_way_round(engine, publisher, program):
    calls = {engine.endpoint: ["status", "--publisher", engine.endpoint],
             publisher.endpoint: ["status", "--engine", publisher.endpoint]}
    for wrong, command in calls.items():
        error = refused(program, *command)
        assert error["code"] in ("corrupt", "invalid_argument") and wrong in error["message"]


def children_of(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def test_an_engine_that_is_ended_while_it_loads_ends_at_once_with_its_ranks(program, folders):
    command, process = program.start("serve", "--model", folders["a"], "--tp", 2)
    layercast_program.wait_until(lambda: len(children_of(process.pid)) == 2, 20, "no ranks were started")
    ranks = children_of(process.pid)
    os.kill(ranks[0], signal.SIGSTOP)  # long before it can have loaded: it cannot become ready any more
    process.terminate()
    outcome = program.finish((command, process))
    assert outcome.output == ""
    assert "error" not in outcome.errors and len(outcome.errors.splitlines()) == 1, outcome.errors
    assert not any(layercast_program.is_running(pid) for pid in ranks)


def test_a_signal_to_all_processes_of_an_engine_ends_it_as_one_to_its_parent_does(start, folders):
    """What a terminal, a container or a job's scheduler sends."""
    daemon = start("serve", "--model", folders["a"], "--tp", 2)
    for number in (signal.SIGINT, signal.SIGTERM):
        for rank in daemon.pids:
            os.kill(rank, number)
    daemon.stop()
    assert "process" not in daemon.errors(), daemon.errors()


def test_whoever_asked_for_a_reload_is_told_that_the_engine_ended_meanwhile(program, start, folders):
    daemon = start("serve", "--model", folders["a"])
    trainer = start("publish", "--checkpoint", folders["b"])
    os.kill(trainer.process.pid, signal.SIGSTOP)  # the reload waits for it
    reload = program.start("reload", "--engine", daemon.endpoint, "--publisher", trainer.endpoint)
    layercast_program.wait_until(lambda: program.status(daemon)["state"] == "receiving", 20, "no reload began")
    daemon.stop()
    error = program.finish(reload, 1).json["engines"][0]["error"]
    assert error == {"code": "cancelled", "message": "the engine was ended"}
    trainer.kill()


@pytest.mark.parametrize("bind, bound", [("tcp://localhost:0", "tcp://127.0.0.1:"), ("tcp://[::1]:0", "tcp://[::1]:")])
@pytest.mark.parametrize("channel", ["zmq", "ucx", "shm"])
def test_loopback_by_other_names(bind, bound, channel, program, start, folders):
    daemon = start("serve", "--model", folders["a"], "--bind", bind)
    trainer = start("publish", "--checkpoint", folders["b"], "--bind", bind)
    assert daemon.endpoint.startswith(bound) and trainer.endpoint.startswith(bound)
    report = program.reload(daemon, "--publisher", trainer.endpoint, "--channel", channel)["report"]
    assert report["channel"]["name"] == channel
    for process in (trainer, daemon):
        process.stop()


@pytest.mark.parametrize("what", [["--engine"], ["--publisher"]], ids=" ".join)
def test_a_host_that_nobody_knows_is_named(what, program):
    error = refused(program, "status", *what, "tcp://trainer-7.invalid:7700")
    assert error["code"] == "unavailable" and "the host 'trainer-7.invalid'" in error["message"]


def test_an_engine_names_the_host_of_a_publisher_that_nobody_knows(engine, program):
    error = program.reload(engine, "--publisher", "tcp://trainer-7.invalid:7700", status=1)["error"]
    assert error["code"] == "unavailable" and "the host 'trainer-7.invalid'" in error["message"]


def test_a_rank_that_is_started_anew_is_made_from_what_its_engine_was_started_with(program, start, tmp_path, folders):
    model, rules = tmp_path / "model", tmp_path / "rules.json"
    model.mkdir()
    for file in folders["a"].iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    rules.write_text('{"names": [{"prefix": "policy", "to": ""}]}')
    daemon = start("serve", "--model", model, "--weight-rules", rules)
    before = program.status(daemon)["ranks"]
    (model / "config.json").write_text("{}")
    rules.write_text('{"names": [{"prefix": "model", "drop": "another run\'s"}]}')
    os.kill(before[0]["pid"], signal.SIGKILL)
    layercast_program.wait_until(lambda: "died of signal 9" in daemon.errors(), 20, "nobody noticed")
    reloaded = program.reload(daemon, "--weights-path", folders["a"])
    assert reloaded["ok"] and reloaded["report"]["ranks"][0]["served_digest"] == before[0]["served_digest"]
    daemon.stop()


def test_an_engine_whose_endpoint_is_refused_says_so_before_it_loads(program, tmp_path, folders):
    (tmp_path / "config.json").write_text((folders["a"] / "config.json").read_text())
    error = refused(program, "serve", "--model", tmp_path, "--bind", "tcp://127.0.0.1:nowhere")
    assert "tcp://127.0.0.1:nowhere" in error["message"]
