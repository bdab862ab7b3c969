"""Versions that carry noise: engines serve it, say so and are verified with it, and what leaves them is clean."""

import os
import signal

import noise
import oracle
import pytest

RECIPE = "fp8_per_channel"


@pytest.fixture
def setting(program, start, checkpoint):
    folder = checkpoint("qwen3", "b")

    def serve(*arguments, model="a"):
        return start("serve", "--model", checkpoint("qwen3", model), "--quantization", RECIPE, *arguments)

    def publish(step, *arguments):
        return start("publish", "--model", folder, "--lineage", "run", "--step", step, *arguments)

    return folder, serve, publish


def digests(program, engine):
    return [rank["served_digest"] for rank in program.status(engine)["ranks"]]


def assert_clean_export(program, engine, folder, out, ranks=1):
    program.export(engine, out)
    for rank in range(ranks):
        expected = oracle.served_tensors(folder, ranks, rank, RECIPE)
        assert oracle.differences(oracle.read_export(out, rank), expected) == []


def verified(program, engine, folder):
    return program.run("verify", "--engine", engine.endpoint, "--model", folder).json


def test_engines_serve_a_versions_noise_and_export_it_clean(program, setting, tmp_path):
    folder, serve, publish = setting
    publisher = publish(7, "--noise", "0.02", "--noise-seed", 3)
    engines = {"shared": serve(), "two ranks": serve("--tp", 2, "--commit", "undo"),
               "own": serve("--noise", "per-engine"), "off": serve("--noise", "off")}
    for name, engine in engines.items():
        done = program.reload(engine, "--publisher", publisher.endpoint)
        assert done["version"] == publisher.version
        said = done["report"]["noise"]
        assert program.status(engine)["noise"] == said
        checked = verified(program, engine, folder)
        assert checked["equal"] and checked["noise"] == said
        assert_clean_export(program, engine, folder, tmp_path / name, 2 if name == "two ranks" else 1)
        if name == "off":
            assert said is None
        else:
            assert (said["sigma"], said["seed"]) == (pytest.approx(0.02), noise.seed_of("run", 7, 3))
            assert (said["own"] == 0) == (name != "own")
    served = {name: digests(program, engine)[0] for name, engine in engines.items() if name != "two ranks"}
    assert len(set(served.values())) == 3
    program.reload(engines["shared"], "--publisher", publisher.endpoint, "--noise", "off")
    assert program.status(engines["shared"])["noise"] is None
    assert digests(program, engines["shared"])[0] == served["off"]
    program.reload(engines["off"], "--publisher", publisher.endpoint)  # its own --noise off
    assert program.status(engines["off"])["noise"] is None


def test_noise_goes_with_what_is_lent_kept_and_brought_back(program, setting, start, checkpoint, tmp_path):
    folder, serve, publish = setting
    engine = serve("--keep-previous")
    first = publish(1, "--noise", "0.01")
    program.reload(engine, "--publisher", first.endpoint)
    of_first = digests(program, engine)
    twin = start("serve", "--model", checkpoint("qwen3", "a"), "--quantization", RECIPE, "--load-format", "remote",
                 "--from-engine", engine.endpoint)
    assert digests(program, twin) == of_first and program.status(twin)["noise"]["sigma"] == pytest.approx(0.01)
    assert verified(program, twin, folder)["equal"]

    program.reload(engine, "--publisher", publish(2, "--noise", "0.05").endpoint)
    assert digests(program, engine) != of_first
    program.run("rollback", "--engine", engine.endpoint)
    assert digests(program, engine) == of_first
    assert program.status(engine)["noise"]["seed"] == noise.seed_of("run", 1)
    assert_clean_export(program, engine, folder, tmp_path / "rolled-back")

    os.kill(program.status(engine)["ranks"][0]["pid"], signal.SIGKILL)  # its memory outlives it
    program.run("generate", "--engine", engine.endpoint, "--tokens", "3,11", "--max-new", 2, status=None)
    program.reload(engine, "--publisher", first.endpoint)
    assert digests(program, engine) == of_first
    assert_clean_export(program, engine, folder, tmp_path / "after-a-death")


def test_a_store_keeps_a_versions_noise(program, setting, tmp_path):
    folder, serve, publish = setting
    publisher = publish(4, "--noise", "0.01,0.0001,10,10", "--store", tmp_path / "store")
    program.run("versions", "wait", "--publisher", publisher.endpoint, "--version", "run@4")
    publisher.kill()
    engine = serve()
    report = program.reload(engine, "--store", tmp_path / "store")["report"]
    assert report["noise"]["sigma"] == pytest.approx(0.01 * 0.01 ** (3 / 8))
    assert verified(program, engine, folder)["equal"]


def test_what_is_no_noise_is_refused(program, checkpoint):
    folder = checkpoint("qwen3", "a")
    for arguments in (("--noise", "0"), ("--noise", "1,2"), ("--noise", "0.1,0.01,2.5,10"), ("--noise", "9,0.01,3,10")):
        assert "noise" in program.refused("publish", "--model", folder, *arguments, status=2)["message"]
