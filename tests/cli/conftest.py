"""An engine and a publisher as the subcommands start them, shared by the tests of one file."""

import os

import pytest

import program as layercast_program


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
