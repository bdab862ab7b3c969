"""An engine and a publisher as the subcommands start them, shared by the tests of all files: none may leave them unable
to serve the next one."""

import os

import pytest

import fake_engine
import program as layercast_program


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    return layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="session")
def start(program):
    running = []

    def start(*arguments):
        running.append(program.daemon(*arguments))
        return running[-1]

    yield start
    for daemon in running:
        daemon.kill()


@pytest.fixture(scope="session")
def folders(checkpoint):
    return {version: checkpoint("qwen3", version) for version in "ab"}


@pytest.fixture(scope="session")
def engine(start, folders):
    return start("serve", "--model", folders["a"], "--tp", 1, "--quantization", "fp8_per_channel")


@pytest.fixture(scope="session")
def publisher(start, folders):
    return start("publish", "--model", folders["b"], "--lineage", "run-17", "--step", 42)


@pytest.fixture
def fake():
    """Makes engines that answer as a test says, each the given answer to all it is asked."""
    engines = []

    def make(answer):
        engines.append(fake_engine.FakeEngine(answer))
        return engines[-1].endpoint

    yield make
    for engine in engines:
        engine.close()
