"""Processes of two commits work together, each in every place: what docs/operations.md promises to whoever upgrades a run
one process after the other. `scripts/nightly upgrade` builds the other program: LAYERCAST_BEFORE_PROGRAM."""

import itertools
import os
import pathlib

import pytest

import program as layercast_program
from reload_setting import RECIPE

BEFORE = os.environ.get("LAYERCAST_BEFORE_PROGRAM")
pytestmark = pytest.mark.skipif(BEFORE is None, reason="LAYERCAST_BEFORE_PROGRAM does not say where another commit's program is")
MIXED = [places for places in itertools.product(("before", "now"), repeat=3) if len(set(places)) > 1]
CHANNELS = ("shm", "zmq", "ucx")


@pytest.fixture(scope="module")
def programs(program, tmp_path_factory):
    return {"now": program, "before": layercast_program.Program(BEFORE, tmp_path_factory.mktemp("before"))}


@pytest.fixture
def start(programs):
    """start(when, subcommand, *arguments)"""
    running = []

    def start(when, *arguments):
        running.append(programs[when].daemon(*arguments))
        return running[-1]

    yield start
    for daemon in running:
        daemon.kill()


@pytest.fixture
def folders(checkpoint):
    return {version: checkpoint("qwen3", version) for version in ("a", "b")}


@pytest.fixture
def secured(tmp_path, program):
    keys = tmp_path / "keys"
    program.run("keygen", str(keys))
    return ("--keys", keys)


def pair_id(places):
    return "-".join(places)


@pytest.mark.parametrize("places", MIXED, ids=pair_id)
def test_an_engine_takes_a_version_whoever_publishes_and_whoever_asks(programs, start, folders, assert_serves, places):
    publishing, serving, asking = places
    publisher = start(publishing, "publish", "--model", folders["b"], "--keep", 2)
    engine = start(serving, "serve", "--model", folders["a"], "--tp", 2, "--quantization", RECIPE, "--keep-previous")
    controller = programs[asking]
    for channel in CHANNELS:
        done = controller.reload(engine, "--publisher", publisher.endpoint, "--channel", channel)
        assert done["ok"] and done["version"] == publisher.version and done["report"]["channel"]["name"] == channel
    assert controller.status(engine)["version"] == publisher.version
    assert controller.run("status", "--publisher", publisher.endpoint).json["version"] == publisher.version
    assert controller.run("versions", "--publisher", publisher.endpoint).json["versions"]
    assert controller.generate(engine, (3, 11, 4), "--max-new", 2)["spans"][0]["version"] == publisher.version
    assert controller.run("verify", "--engine", engine.endpoint, "--model", folders["b"]).json["equal"]
    assert_serves(engine, folders["b"], RECIPE)
    assert controller.run("rollback", "--engine", engine.endpoint).json["engines"][0]["ok"]
    assert_serves(engine, folders["a"], RECIPE)


@pytest.mark.parametrize("places", MIXED, ids=pair_id)
def test_a_stream_and_keys(programs, start, folders, assert_serves, secured, places):
    publishing, serving, asking = places
    publisher = start(publishing, "publish", "--model", folders["b"], "--mode", "stream", *secured)
    engine = start(serving, "serve", "--model", folders["a"], "--quantization", RECIPE, *secured)
    done = programs[asking].reload(engine, "--publisher", publisher.endpoint, *secured)
    assert done["ok"] and done["version"]["digest"] == programs[asking].run(
        "status", "--engine", engine.endpoint, *secured).json["version"]["digest"]


@pytest.mark.parametrize("places", MIXED, ids=pair_id)
def test_engines_of_both_commits_relay_to_each_other_and_commit_together(programs, start, folders, assert_serves, places):
    publishing, first, second = places
    publisher = start(publishing, "publish", "--model", folders["b"])
    relay = ("--relay", "tcp://127.0.0.1:0", "--quantization", RECIPE)
    engines = [start(when, "serve", "--model", folders["a"], *relay) for when in (first, second)]
    both = ",".join(engine.endpoint for engine in engines)
    for when in ("before", "now"):
        outcomes = programs[when].run("reload", "--engine", both, "--publisher", publisher.endpoint, "--all-or-none").json["engines"]
        assert all(outcome["ok"] for outcome in outcomes)
    for engine in engines:
        assert_serves(engine, folders["b"], RECIPE)


@pytest.mark.parametrize(("writing", "serving"), [("before", "now"), ("now", "before")])
def test_a_store_is_read_by_the_other(programs, start, folders, tmp_path, assert_serves, writing, serving):
    store = tmp_path / "store"
    publisher = start(writing, "publish", "--model", folders["b"], "--store", store)
    programs[writing].run("versions", "wait", "--publisher", publisher.endpoint, "--version",
                          f"{publisher.version['lineage']}@{publisher.version['step']}")
    engine = start(serving, "serve", "--model", folders["a"], "--quantization", RECIPE)
    assert programs[writing].reload(engine, "--store", store)["version"] == publisher.version
    assert_serves(engine, folders["b"], RECIPE)
    assert programs[serving].run("versions", "check", "--store", store).json


@pytest.mark.parametrize(("lending", "taking"), [("before", "now"), ("now", "before")])
def test_an_engine_takes_what_another_one_lends(programs, start, folders, assert_serves, lending, taking):
    lender = start(lending, "serve", "--model", folders["b"], "--quantization", RECIPE)
    engine = start(taking, "serve", "--model", folders["a"], "--quantization", RECIPE)
    assert programs[taking].reload(engine, "--from-engine", lender.endpoint)["version"] == lender.version
    assert_serves(engine, folders["b"], RECIPE)


def test_the_programs_are_not_the_same():
    now = pathlib.Path(os.environ.get("LAYERCAST_PROGRAM", "build/release/bin/layercast"))
    assert now.read_bytes() != pathlib.Path(BEFORE).read_bytes()
