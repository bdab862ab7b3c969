"""Signals, processes that die, ranks that are started anew: whatever ends leaves nothing behind, and says why."""

import os
import pathlib
import signal
import socket

import pytest

import program as layercast_program


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("what", ["serve", "publish"])
def test_a_signal_ends_everything_cleanly(what, number, start, folders):
    daemon = start(what, "--model", folders["a"])
    daemon.signal(number)
    assert daemon.process.wait(20) == 0
    layercast_program.wait_until(lambda: not any(map(layercast_program.is_running, daemon.pids)), 5, "outlived it")


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
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for rank in daemon.pids:
            os.kill(rank, number)
    daemon.stop()
    assert "process" not in daemon.errors(), daemon.errors()


def test_under_nohup_the_end_of_a_terminal_is_no_end(program, start, folders):
    outlives = layercast_program.Program(program.path, program.scratch, ["nohup"])
    trainer = outlives.daemon("publish", "--model", folders["a"])
    trainer.signal(signal.SIGHUP)
    trainer.signal(signal.SIGTERM)  # the only one that is waited for
    assert trainer.process.wait(20) == 0
    assert "SIGTERM" in trainer.errors() and "SIGHUP" not in trainer.errors()


def test_whoever_asked_for_a_reload_is_told_that_the_engine_ended_meanwhile(program, start, folders):
    daemon = start("serve", "--model", folders["a"])
    trainer = start("publish", "--model", folders["b"])
    trainer.freeze()  # the reload waits for it
    reload = program.start("reload", "--engine", daemon.endpoint, "--publisher", trainer.endpoint)
    layercast_program.wait_until(lambda: program.status(daemon)["state"] == "receiving", 20, "no reload began")
    daemon.stop()
    error = program.finish(reload, 1).json["engines"][0]["error"]
    assert error == {"code": "cancelled", "message": "the engine was ended"}
    trainer.kill()


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
    reloaded = program.reload(daemon, "--model", folders["a"])
    assert reloaded["ok"] and reloaded["report"]["ranks"][0]["served_digest"] == before[0]["served_digest"]
    daemon.stop()


def children(pid):
    return [int(child) for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def test_a_rank_that_dies_while_its_engine_loads_is_told_of_once(program, start, folders, tmp_path):
    trainer = start("publish", "--model", folders["b"])
    trainer.freeze()  # the load waits for it
    socket = tmp_path / "engine"
    command, process = program.start("serve", "--model", folders["a"], "--tp", 2, "--load-format", "remote",
                                     "--publisher", trainer.endpoint, "--bind", f"ipc://{socket}")
    layercast_program.wait_until(socket.exists, 20, "no engine")
    layercast_program.wait_until(lambda: program.status(f"ipc://{socket}")["progress"], 20, "no load began")
    for rank in children(process.pid):
        os.kill(rank, signal.SIGKILL)
    outcome = program.finish((command, process), 1)
    message = outcome.json["error"]["message"]
    assert "died of signal 9" in message and outcome.errors == f"layercast serve: {message}\n"


def test_an_interrupted_reload_says_that_the_engine_goes_on(program, start, folders):
    daemon = start("serve", "--model", folders["a"])
    trainer = start("publish", "--model", folders["b"])
    trainer.freeze()  # the reload waits for it
    command, process = program.start("reload", "--engine", daemon.endpoint, "--publisher", trainer.endpoint)
    layercast_program.wait_until(lambda: program.status(daemon)["state"] == "receiving", 20, "no reload began")
    process.send_signal(signal.SIGINT)
    assert "interrupted; the engines go on with it" in program.finish((command, process), 130).errors
    os.kill(trainer.process.pid, signal.SIGCONT)
    layercast_program.wait_until(lambda: program.status(daemon)["version"] == trainer.version, 20, "it did not go on")


@pytest.mark.parametrize("arguments, said", [
    (["reload"], "layercast reload: interrupted; the engines go on with it"),
    (["reload", "--all-or-none"], "layercast reload: interrupted; the engines drop what they have staged"),
    (["generate", "--tokens", "3"], "layercast: interrupted"), (["status"], "layercast: interrupted")])
def test_ctrl_c_ends_a_command_that_waits_with_a_word_and_a_status(arguments, said, program):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        command, process = program.start(*arguments, "--engine", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        outcome = program.finish((command, process), 130)
        connection.close()
    assert said in outcome.errors and outcome.output == ""
