"""What a user gets wrong in a command that controls engines: it is refused within seconds, and named."""

import pytest

NOBODY = "tcp://127.0.0.1:1"
FAR_AWAY = ("--timeout", 100)  # nothing below may wait for it


@pytest.fixture(scope="module")
def fleet(start_shared, checkpoint):
    class Fleet:
        engine = start_shared("serve", "--model", checkpoint("llama", "a")).endpoint
        other = start_shared("serve", "--model", checkpoint("llama", "a")).endpoint
        publisher = start_shared("publish", "--model", checkpoint("llama", "b"), "--lineage", "run", "--step", 3).endpoint
    return Fleet


def by_name(endpoint):
    return endpoint.replace("127.0.0.1", "localhost")


# Which engines, from where, and what is said.
MISTAKES = {
    "an engine that nobody runs": (
        lambda f: (NOBODY,), lambda f: ("--publisher", f.publisher),
        f"engine {NOBODY} was silent for 5000 ms, calling 'reload_weights': it has never answered; does it run"),
    "one of two that nobody runs": (
        lambda f: (f.engine, NOBODY), lambda f: ("--publisher", f.publisher, "--all-or-none"),
        f"layercast reload: engine {NOBODY} was silent"),
    "an engine as publisher": (
        lambda f: (f.engine,), lambda f: ("--publisher", f.other), "is no publisher and no receiver (an engine?)"),
    "the engine itself as publisher": (
        lambda f: (f.engine,), lambda f: ("--publisher", f.engine), "is no publisher and no receiver (an engine?)"),
    "a publisher as engine": (
        lambda f: (f.publisher,), lambda f: ("--publisher", f.publisher), "(a publisher's endpoint?)"),
    "a publisher as the engine that lends": (
        lambda f: (f.engine,), lambda f: ("--from-engine", f.publisher), "(a publisher's endpoint?)"),
    "the engine itself as the one that lends": (
        lambda f: (f.engine,), lambda f: ("--from-engine", by_name(f.engine)), "expected another engine, got this one"),
    "a version that is not there": (
        lambda f: (f.engine,), lambda f: ("--publisher", f.publisher, "--version", "run@9"),
        "version run@9 is not offered here; offered: run@3"),
    "one engine twice": (
        lambda f: (f.engine, f.engine), lambda f: ("--publisher", f.publisher), "is named twice"),
    "one engine under two names": (
        lambda f: (f.engine, by_name(f.engine)), lambda f: ("--publisher", f.publisher, "--all-or-none"),
        "expected each of them once"),
    "one publisher twice": (
        lambda f: (f.engine,), lambda f: ("--publisher", f"{f.publisher},{f.publisher}"), "expected each part once"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_is_refused_and_named(mistake, fleet, program):
    engines, source, said = MISTAKES[mistake]
    done = program.run("reload", "--engine", ",".join(engines(fleet)), *source(fleet), *FAR_AWAY, status=1)
    assert said in done.errors
    for engine in (fleet.engine, fleet.other):
        assert program.run("status", "--engine", engine).json["version"]["step"] == 0


@pytest.mark.parametrize("version", ["run", "@3", "run@-3", "run@"])
def test_a_version_has_a_shape(version, fleet, program):
    done = program.run("reload", "--engine", fleet.engine, "--publisher", fleet.publisher, "--version", version, status=2)
    assert f"--version: expected LINEAGE@STEP, got '{version}'" in done.errors
