"""Fixtures of the end-to-end tests: the program, engines and publishers that never outlive their test, and the
comparison of what an engine serves with the oracle."""

import functools
import os
import pathlib

import pytest

import disk_names
import oracle
import program as layercast_program
from reload_setting import Setting


def pytest_configure():
    if not _path().is_file():
        pytest.exit(f"no program at {_path()}: build it, or say where it is with LAYERCAST_PROGRAM", returncode=2)


def _path():
    default = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin/layercast"
    return pathlib.Path(os.environ.get("LAYERCAST_PROGRAM", default))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return layercast_program.Program(_path(), tmp_path_factory.mktemp("program"))


def _starter(program):
    running = []

    def start(subcommand, *arguments, **how):
        daemon = program.daemon(subcommand, *arguments, **how)
        running.append(daemon)
        return daemon

    return start, running


@pytest.fixture
def start(program):
    """start("serve", "--model", folder, ...) -> Daemon, killed when the test ends."""
    start, running = _starter(program)
    yield start
    for daemon in running:
        daemon.kill()


@pytest.fixture(scope="module")
def start_shared(program):
    """The same, until the last test of the file has ended."""
    start, running = _starter(program)
    yield start
    for daemon in running:
        daemon.kill()


@functools.cache
def expected_tensors(folder, tp, pp, recipe):
    """By rank of the engine: stage by stage."""
    config, _ = disk_names.text_part(oracle.read_config(folder), oracle.read_tensors(folder))
    sizes = oracle.stage_sizes(disk_names.layers_of(config), pp)
    of_ranks = [oracle.served_tensors(folder, tp, rank, recipe) for rank in range(tp)]
    return [oracle.of_stage(served, config, sizes, stage) for stage in range(pp) for served in of_ranks]


@pytest.fixture
def assert_serves(program, tmp_path):
    """assert_serves(engine, folder, recipe): `layercast export` reads back what the oracle makes of folder's files."""
    count = iter(range(10**6))

    def check(engine, folder, recipe):
        out = tmp_path / f"export-{next(count)}"
        said = program.export(engine, out)
        tp, pp = engine.ready["tp"], engine.ready["pp"]
        assert sorted(path.name for path in out.glob("*.safetensors")) == sorted(said["files"])
        for rank, expected in enumerate(expected_tensors(folder, tp, pp, recipe)):
            lines = oracle.differences(oracle.read_export(out, rank), expected)
            assert not lines, f"rank {rank} of {tp * pp}, {recipe}, {folder.name}:\n" + "\n".join(lines)

    return check


@pytest.fixture
def setting(program, start, checkpoint, assert_serves):
    return Setting(program, start, checkpoint, assert_serves)
