"""Some engines have a version on trial before the others take it: promoted, rolled back, and whatever dies meanwhile."""

import itertools
import shlex
import signal

import pytest

from program import wait_until


class Fleet:
    """Three engines that serve one version of a publisher, of which each test publishes the next."""

    def __init__(self, program, start, checkpoint):
        self.program, self.start, self.checkpoint = program, start, checkpoint
        self.steps = itertools.count(2)
        both = f"{checkpoint('qwen3', 'a')},{checkpoint('qwen3', 'b')}"
        self.publisher = start("publish", "--model", checkpoint("qwen3", "a"), "--lineage", "run", "--step", 1, "--keep", 2,
                               "--allow-path", both)
        self.engines = [self.engine("--keep-previous") for _ in range(3)]

    def engine(self, *arguments, start=None):
        return (start or self.start)("serve", "--model", self.checkpoint("qwen3", "a"), "--load-format", "remote", "--publisher",
                                     self.publisher.endpoint, *arguments)

    def publish_next(self):
        step = next(self.steps)
        done = self.program.run("publish", "--to", self.publisher.endpoint, "--model", self.checkpoint("qwen3", "ab"[step % 2]),
                                "--step", step)
        return done.json["version"]

    def served(self, engine):
        return self.program.status(engine)["version"]

    def trial(self, engine):
        return self.program.status(engine)["trial"]

    def pinned(self):
        listed = self.program.run("versions", "--publisher", self.publisher.endpoint).json["versions"]
        return [one["version"] for one in listed if one["pinned"]]

    def command(self, *arguments, engines=None, canaries=1, publisher=None):
        engines = engines or self.engines
        endpoints = [engine.endpoint for engine in engines]
        return ("reload", "--engine", ",".join(endpoints), "--publisher", (publisher or self.publisher).endpoint, "--canary",
                ",".join(endpoints[:canaries]), *arguments)

    def until_on_trial(self, version, engine=None):
        def is_on_trial():
            trial = self.trial(engine or self.engines[0])
            # It was told how long the trial lasts, now that all canaries serve the version.
            return trial and trial["version"] == version and trial["state"] == "waiting" and trial["left_ms"] <= 100_000

        wait_until(is_on_trial, 60, "the canary is not on trial")

    def assert_serve(self, version, engines=None):
        assert [self.served(engine) for engine in engines or self.engines] == [version] * len(engines or self.engines)


@pytest.fixture(scope="module")
def fleet(program, start_shared, checkpoint):
    return Fleet(program, start_shared, checkpoint)


@pytest.fixture
def before(fleet):
    """What all engines serve when a test begins."""
    version = fleet.served(fleet.engines[0])
    fleet.assert_serve(version)
    return version


def test_a_check_that_succeeds_has_all_engines_serve_the_version(fleet, before, tmp_path):
    version = fleet.publish_next()
    status = f"{shlex.quote(str(fleet.program.path))} status --json --engine"
    check = f'set -e; {status} "$LAYERCAST_CANARY" > {tmp_path}/canary; {status} "${{LAYERCAST_OTHERS%,*}}" > {tmp_path}/other; ' \
            f'echo "$LAYERCAST_VERSION" > {tmp_path}/version; echo this is told on standard error'
    done = fleet.program.run(*fleet.command("--check", check))
    assert "this is told on standard error" in done.errors
    said = done.json
    assert said["ok"] and said["canary"]["promoted"] and said["canary"]["version"] == version
    assert [engine["version"] for engine in said["engines"]] == [version] * 3
    assert f'"step": {version["step"]}' in (tmp_path / "canary").read_text().replace('":', '": ')
    assert before["digest"] in (tmp_path / "other").read_text()
    assert (tmp_path / "version").read_text() == f"run@{version['step']}:{version['digest']}\n"
    fleet.assert_serve(version)
    assert fleet.trial(fleet.engines[0])["state"] == "promoted" and fleet.trial(fleet.engines[1]) is None
    assert fleet.pinned() == []


def test_a_check_that_fails_has_the_canaries_go_back(fleet, before):
    fleet.publish_next()
    done = fleet.program.run(*fleet.command("--check", "exit 3", canaries=2), status=1)
    said = done.json
    assert not said["ok"] and not said["canary"]["promoted"] and said["canary"]["why"]["message"] == "the check failed: exit status 3"
    assert [(engine["ok"], engine["version"]) for engine in said["engines"]] == [(True, before)] * 2
    assert "was not promoted: the check failed: exit status 3" in done.errors
    fleet.assert_serve(before)
    assert fleet.trial(fleet.engines[0])["state"] == fleet.trial(fleet.engines[1])["state"] == "rolled_back"
    assert fleet.pinned() == []


def test_a_check_that_takes_too_long_has_failed(fleet, before):
    fleet.publish_next()
    said = fleet.program.run(*fleet.command("--check", "exec sleep 1000", "--trial", 0.2), status=1).json
    assert said["canary"]["why"]["code"] == "deadline_exceeded"
    fleet.assert_serve(before)


def test_a_version_is_promoted_whose_answers_are_about_as_likely_as_those_before(fleet, before, tmp_path):
    prompts = tmp_path / "prompts"
    prompts.write_text("3,11,4\n\n5,2\n")

    def check(most, **how):
        return fleet.program.run(*fleet.command("--check-logprobs", prompts, "--max-difference", most), **how)

    version = fleet.publish_next()
    assert check(1000).json["canary"]["promoted"]
    fleet.assert_serve(version)
    fleet.publish_next()  # of other weights
    said = check(0, status=1).json
    assert said["canary"]["why"]["code"] == "failed_precondition"
    assert "expected a difference of at most 0.0000" in said["canary"]["why"]["message"]
    fleet.assert_serve(version)
    same_weights = fleet.publish_next()
    assert check(0).json["canary"]["promoted"]
    fleet.assert_serve(same_weights)
    prompts.write_text("3,11,4\n3,x\n")
    assert "line 2: expected token ids, 3,11,4, got '3,x'" in check(0, status=1).json["error"]["message"]
    assert "--max-difference" in fleet.program.refused(*fleet.command("--check-logprobs", prompts), status=2)["message"]


@pytest.mark.parametrize("verdict", ["promote", "rollback --canary"])
def test_somebody_else_decides(fleet, before, verdict):
    version = fleet.publish_next()
    waiting = fleet.program.start(*fleet.command("--wait-promote", "--trial", 90))
    fleet.until_on_trial(version)
    assert "waiting" in fleet.program.text("status", "--engine", fleet.engines[0].endpoint)
    assert version in fleet.pinned()
    fleet.assert_serve(before, fleet.engines[1:])
    fleet.program.run(*verdict.split(), "--engine", fleet.engines[0].endpoint)
    promoted = verdict == "promote"
    said = fleet.program.finish(waiting, status=0 if promoted else 1).json
    assert said["canary"]["promoted"] == promoted
    fleet.assert_serve(version if promoted else before)
    late = fleet.program.run(*verdict.split(), "--engine", fleet.engines[2].endpoint, status=1).json["engines"][0]["error"]
    assert late["code"] == "failed_precondition" and "no version is on trial" in late["message"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_ended_has_the_canaries_go_back_first(fleet, before, number):
    version = fleet.publish_next()
    waiting = fleet.program.start(*fleet.command("--wait-promote", "--trial", 90))
    fleet.until_on_trial(version)
    waiting[1].send_signal(number)
    assert fleet.program.finish(waiting, status=1).json["canary"]["why"]["code"] == "cancelled"
    fleet.assert_serve(before)


def test_canaries_of_a_command_that_is_killed_go_back_by_themselves(fleet, before):
    version = fleet.publish_next()
    done = fleet.program.run(*fleet.command("--check", "kill -9 $PPID", "--trial", 1, canaries=2), status=-9)
    assert done.output == ""
    fleet.assert_serve(before, fleet.engines[2:])
    wait_until(lambda: all(fleet.trial(canary)["state"] == "rolled_back" for canary in fleet.engines[:2]), 60, "still on trial")
    assert fleet.trial(fleet.engines[0])["version"] == version
    fleet.assert_serve(before)


def test_a_canary_that_dies_is_a_verdict_against_the_version(fleet, before, start):
    version = fleet.publish_next()
    mortal = fleet.engine("--version", f"run@{version['step']}", "--keep-previous", start=start)
    version = fleet.publish_next()
    engines = [mortal, *fleet.engines]
    waiting = fleet.program.start(*fleet.command("--wait-promote", "--trial", 90, engines=engines, canaries=2))
    fleet.until_on_trial(version)
    fleet.until_on_trial(version, mortal)
    mortal.kill()
    said = fleet.program.finish(waiting, status=1).json
    assert mortal.endpoint in said["canary"]["why"]["message"]
    assert [engine["ok"] for engine in said["engines"]] == [False, True]
    fleet.assert_serve(before)


def test_a_publisher_that_is_gone_at_the_promotion_has_all_serve_what_they_did(fleet, before, start):
    publisher = start("publish", "--model", fleet.checkpoint("qwen3", "ab"[before["step"] % 2 - 1]), "--lineage", "run", "--step", 1000)
    done = fleet.program.run(*fleet.command("--check", f"kill -9 {publisher.process.pid}", "--timeout", 20, publisher=publisher), status=1)
    said = done.json
    assert not said["canary"]["promoted"] and "not all engines took it" in said["canary"]["why"]["message"]
    canary, *others = said["engines"]
    assert canary["error"]["code"] == "cancelled" and "went back, because not all engines took the version" in canary["error"]["message"]
    assert [engine["version"] for engine in said["engines"]] == [before] * 3 and not any(engine["ok"] for engine in others)
    assert publisher.endpoint in done.errors
    fleet.assert_serve(before)


def test_a_canary_without_a_copy_goes_back_to_what_the_publisher_keeps(fleet, before, start):
    engine = fleet.engine(start=start)
    version = fleet.publish_next()
    # The publisher keeps two versions: that which the engine serves stays for as long as it is the way back.
    started = fleet.served(engine)
    said = fleet.program.run(*fleet.command("--check", "exit 1", engines=[engine]), status=1).json
    assert said["canary"]["version"] == version and said["engines"][0]["report"]["channel"]["name"] != "previous"
    assert fleet.served(engine) == started
    fleet.publish_next()
    fleet.publish_next()
    none = fleet.program.refused(*fleet.command("--check", "true", engines=[engine]))
    assert none["code"] == "failed_precondition" and engine.endpoint in none["message"]
    assert "has no way back to it: expected serve --keep-previous, or publisher" in none["message"]
    assert fleet.served(engine) == started


def test_a_canary_that_serves_the_version_already_has_nothing_to_try(fleet, before):
    version = fleet.publish_next()
    fleet.program.run(*fleet.command("--check", "true"))
    refused = fleet.program.refused(*fleet.command("--check", "true"))
    assert refused["code"] == "failed_precondition" and "already" in refused["message"]
    fleet.assert_serve(version)


def test_what_a_canary_needs_is_said(program, start, checkpoint):
    def usage(*arguments):
        return program.refused("reload", "--engine", "tcp://127.0.0.1:1", "--canary", "tcp://127.0.0.1:1", *arguments, status=2)["message"]

    assert "expected --check, --check-logprobs or --wait-promote, got none" in usage()
    assert "expected no --all-or-none" in usage("--check", "true", "--all-or-none")
    assert "--wait-promote" in usage("--check", "true", "--wait-promote")
    other = program.refused("reload", "--engine", "tcp://127.0.0.1:1", "--canary", "tcp://127.0.0.1:2", "--check", "true")
    assert other["message"] == "canary tcp://127.0.0.1:2: expected one of the controller's engines"
    undoing = start("serve", "--model", checkpoint("qwen3", "a"), "--commit", "undo")
    canary = start("serve", "--model", checkpoint("qwen3", "a"), "--keep-previous")
    refused = program.refused("reload", "--engine", f"{canary.endpoint},{undoing.endpoint}", "--canary", canary.endpoint, "--check", "true",
                              "--model", checkpoint("qwen3", "b"))
    assert undoing.endpoint in refused["message"] and "expected the commit policy staged, got undo" in refused["message"]
    said = program.run("reload", "--engine", canary.endpoint, "--canary", canary.endpoint, "--check", "true", "--model",
                       checkpoint("qwen3", "b")).json
    assert said["canary"]["version"]["lineage"] == checkpoint("qwen3", "b").name
