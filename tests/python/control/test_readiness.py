"""Waiting for engines that start, from Python and by the program."""

import os
import socket

import layercast
import program as layercast_program
import pytest


@pytest.fixture
def program(tmp_path):
    return layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path)


@pytest.fixture
def free_endpoint():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


def test_an_engine_is_waited_for_before_it_is_there(program, folder, free_endpoint):
    waiting = program.start("status", "--engine", free_endpoint, "--wait", "--timeout", "50")
    engine = program.daemon("serve", "--model", folder, "--bind", free_endpoint)
    try:
        layercast.Controller(free_endpoint).wait_until_ready(timeout=50)
        assert program.finish(waiting, 0, 60).json["version"] == engine.version
    finally:
        engine.kill()


def test_who_never_comes_is_named_when_the_time_is_over(free_endpoint):
    with pytest.raises(layercast.DeadlineExceeded, match=f"{free_endpoint}: expected a version in time, got none"):
        layercast.Controller(free_endpoint).wait_until_ready(timeout=0.0)


def test_a_publisher_without_a_version_is_waited_for(program, policies):
    with layercast.Publisher() as publisher:
        error = program.refused("status", "--publisher", publisher.endpoint, "--wait", "--timeout", "0.3")
        assert error["code"] == "deadline_exceeded" and publisher.endpoint in error["message"]
        waiting = program.start("status", "--publisher", publisher.endpoint, "--wait", "--timeout", "50")
        published = publisher.publish(policies(3), step=3)
        assert program.finish(waiting, 0, 60).json["version"]["step"] == published.version.step
