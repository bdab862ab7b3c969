"""Sequences that outlast every test, and that an engine is at work on one. Used by the tests of clients that go."""

import json
import pathlib

import program as layercast_program

TOKENS = 10**6


def endless_copy(folder, out):
    """A copy of a checkpoint whose sequences may be so long."""
    out.mkdir()
    for file in folder.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2 * TOKENS}))
    return out


def _ticks(pid):
    """Of the processor's time that a process has had."""
    return sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def generate(program, engine, *arguments):
    """Starts a command for which the engine generates, and returns once it does: it needs next to no time of a
    processor otherwise."""
    before = _ticks(engine.pids[0])
    command, client = program.start("generate", "--engine", engine.endpoint, "--tokens", "3,11,4", "--max-new", TOKENS,
                                    "--ignore-eos", *arguments)
    layercast_program.wait_until(lambda: _ticks(engine.pids[0]) > before + 30, 60, "it does not generate")
    assert client.poll() is None
    return command, client
