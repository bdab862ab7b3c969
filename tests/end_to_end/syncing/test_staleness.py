"""Engines that are late: what they have passed over, and how far behind their publisher they still answer."""

import pytest


@pytest.fixture
def publisher(start, checkpoint):
    both = f"{checkpoint('qwen3', 'a')},{checkpoint('qwen3', 'b')}"
    return start("publish", "--model", checkpoint("qwen3", "a"), "--lineage", "run", "--step", 1, "--run", "job", "--keep", 1,
                 "--allow-path", both)


@pytest.fixture
def publish(program, publisher, checkpoint):
    def publish(step, run="job"):
        return program.run("publish", "--to", publisher.endpoint, "--model", checkpoint("qwen3", "ab"[step % 2]), "--step", step,
                           "--run", run).json["version"]

    return publish


def serve(start, checkpoint, publisher, *arguments):
    return start("serve", "--model", checkpoint("qwen3", "a"), "--load-format", "remote", "--publisher", publisher.endpoint,
                 *arguments)


def test_a_late_engine_says_what_it_has_passed_over(program, start, checkpoint, publisher, publish):
    engine = serve(start, checkpoint, publisher)
    passed = [publish(step) for step in (2, 3)]
    publish(4)
    report = program.reload(engine, "--publisher", publisher.endpoint)["report"]
    assert report["passed_over"] == {"count": 2, "complete": True, "versions": [{"version": one, "run": "job"} for one in passed]}
    assert program.status(engine)["last_report"]["passed_over"] == report["passed_over"]
    publish(5)
    publish(3, "again")  # which shadows what the run before had from there on
    publish(5, "again")
    text = program.text("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint)
    assert "passed over 2 versions: run@5 (run 'job'), run@3 (run 'again')" in text
    again = program.reload(engine, "--publisher", publisher.endpoint)["report"]
    assert again["passed_over"]["count"] == 0
    assert program.reload(engine, "--model", checkpoint("qwen3", "a"))["report"].get("passed_over") is None


def test_generate_is_refused_beyond_a_bound_to_staleness(program, start, checkpoint, publisher, publish):
    engine = serve(start, checkpoint, publisher)
    strict = serve(start, checkpoint, publisher, "--max-staleness", 0, "--heard-within", 0)
    for step in (2, 3):
        publish(step)

    def ask(of, *bound):
        return "generate", "--engine", of.endpoint, "--tokens", "3,11,4", *bound

    program.run(*ask(engine))
    program.run(*ask(engine, "--max-staleness", 2, "--heard-within", 0))
    stale = program.refused(*ask(engine, "--max-staleness", 1, "--heard-within", 0))
    assert stale["code"] == "failed_precondition"
    assert all(words in stale["message"] for words in ("serves run@1:", "2 steps behind", "offers run@3:", "expected at most 1 steps"))
    assert "expected at most 0 steps" in program.refused(*ask(strict))["message"]
    program.run(*ask(strict, "--max-staleness", 2, "--heard-within", 0))
    program.reload(strict, "--publisher", publisher.endpoint)
    program.run(*ask(strict))
    publisher.kill()
    program.run(*ask(engine, "--max-staleness", 2, "--heard-within", 3600))
    silent = program.refused(*ask(engine, "--max-staleness", 2, "--heard-within", 0))
    assert silent["code"] == "unavailable" and f"publisher {publisher.endpoint} was heard" in silent["message"]


def test_an_engine_that_follows_nobody_is_not_within_any_bound(program, start, checkpoint, publisher):
    ask = ("generate", "--tokens", "3,11,4", "--max-staleness", 9, "--engine")
    alone = start("serve", "--model", checkpoint("qwen3", "a"))
    none = program.refused(*ask, alone.endpoint)
    assert none["code"] == "failed_precondition" and "this engine follows no publisher" in none["message"]
    follows = start("serve", "--model", checkpoint("qwen3", "a"), "--follow", publisher.endpoint)
    assert "a version of another lineage: publisher" in program.refused(*ask, follows.endpoint)["message"]
    program.reload(follows, "--publisher", publisher.endpoint)
    program.run(*ask, follows.endpoint)


def test_a_wait_for_a_version_is_ended_with_its_engine(program, start, checkpoint):
    engine = start("serve", "--model", checkpoint("qwen3", "a"))
    waiting = program.start("generate", "--engine", engine.endpoint, "--tokens", "3,11,4", "--least-version", "run@7", "--wait")
    program.status(engine)  # answers meanwhile
    engine.stop()
    error = program.finish(waiting, status=1).json["error"]
    assert error["code"] in ("cancelled", "unavailable")
