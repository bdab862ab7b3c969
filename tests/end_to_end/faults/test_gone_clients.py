"""Clients that are gone while an engine works for them: what was only to be answered ends, and nobody waits for it."""

import os
import signal

import pytest

import endless
import program as layercast_program


@pytest.fixture
def folder(checkpoint, tmp_path):
    return endless.endless_copy(checkpoint("qwen3", "a"), tmp_path / "endless")


@pytest.fixture(params=["tcp", "ipc"])
def bind(request, tmp_path):
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"ipc://{tmp_path}/engine"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_reload_does_not_wait_for_a_client_that_was_ended(number, bind, program, start, folder):
    engine = start("serve", "--model", folder, "--tp", 2, "--bind", bind)
    asked = endless.generate(program, engine)
    asked[1].send_signal(number)
    assert program.reload(engine, "--pause-mode", "wait", "--timeout", 50)["ok"]
    program.finish(asked, status=-signal.SIGKILL if number == signal.SIGKILL else 130)
    assert len(program.generate(engine, (3, 11), "--max-new", 4)["tokens"]) == 4


def test_a_call_whose_time_is_over_is_generated_for_no_longer(bind, program, start, folder):
    engine = start("serve", "--model", folder, "--bind", bind)
    error = program.refused("generate", "--engine", engine.endpoint, "--tokens", "3", "--max-new", endless.TOKENS,
                            "--ignore-eos", "--timeout", 2)
    assert error["code"] == "deadline_exceeded"
    assert program.reload(engine, "--pause-mode", "wait", "--timeout", 50)["ok"]


def test_a_reload_goes_on_when_its_client_was_killed(program, start, checkpoint):
    engine = start("serve", "--model", checkpoint("qwen3", "a"))
    publisher = start("publish", "--model", checkpoint("qwen3", "b"))
    publisher.freeze()  # the reload waits for it
    command, client = program.start("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint)
    layercast_program.wait_until(lambda: program.status(engine)["state"] == "receiving", 20, "no reload began")
    client.kill()
    program.finish((command, client), status=-signal.SIGKILL)
    os.kill(publisher.process.pid, signal.SIGCONT)
    layercast_program.wait_until(lambda: program.status(engine)["version"] == publisher.version, 20, "it did not go on")
