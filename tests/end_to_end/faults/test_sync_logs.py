"""What both ends of a sync write in their logs with --log-format json: real processes, every line parsed."""

import json
import os
import re
import signal

import pytest

from program import wait_until

SOON = 30
LEVELS = {"debug", "info", "warning", "error"}


def entries(daemon):
    """Its log. Each line must be an entry."""
    parsed = [json.loads(line) for line in daemon.errors().splitlines()]
    for entry in parsed:
        assert list(entry) == ["ts", "level", "component", "pid", "message", "fields"], entry
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["ts"])
        assert entry["level"] in LEVELS and entry["message"] and isinstance(entry["fields"], dict)
    return parsed


def of_syncs(daemon, message):
    return [entry["fields"] for entry in entries(daemon) if entry["message"] == message]


def name(version):
    return f"{version['lineage']}@{version['step']}"


def await_served(publisher, count):
    """A rank says goodbye once it has answered: the publisher's line may come after the reload's outcome."""
    wait_until(lambda: publisher.errors().count('"served"') >= count, SOON, f"{publisher}\nexpected {count} lines")


@pytest.mark.parametrize("mode", ["snapshot", "stream"])
def test_both_ends_have_one_line_of_a_sync_with_one_session(mode, program, start, checkpoint):
    publisher = start("publish", "--model", checkpoint("llama", "b"), "--lineage", "run-17", "--step", 42,
                      "--mode", mode, "--log-format", "json")
    engine = start("serve", "--model", checkpoint("llama", "a"), "--tp", 2, "--log-format", "json")
    taken = [program.reload(engine, "--publisher", publisher.endpoint) for _ in range(2)]
    assert all(each["ok"] for each in taken)
    program.run("probe", "--publisher", publisher.endpoint)  # is no sync, and leaves no line
    await_served(publisher, 4)

    first, *synced = of_syncs(engine, "synced")  # the first is of the engine's own --model
    assert first["peer"].endswith(checkpoint("llama", "a").name) and first["version"] == name(engine.version)
    served = of_syncs(publisher, "served")
    assert len(synced) == 2 and len(served) == 4 and len({line["session"] for line in synced}) == 2
    for outcome, line in zip(taken, synced, strict=True):
        theirs = [other for other in served if other["session"] == line["session"]]
        assert sorted(other["rank"] for other in theirs) == [0, 1]
        assert {other["version"] for other in theirs} == {line["version"]} == {"run-17@42"}
        assert {other["digest"] for other in theirs} == {line["digest"]} == {publisher.version["digest"]}
        assert line["bytes"] == outcome["report"]["bytes"] == sum(other["bytes"] for other in theirs)
        assert line["channel"] == outcome["report"]["channel"]["name"] and line["peer"] == publisher.endpoint
        assert line["seconds"] > 0 and all(other["seconds"] > 0 for other in theirs)
        assert line["session"].startswith(theirs[0]["peer"] + "/")


def test_a_reload_that_is_refused_and_a_peer_that_dies_leave_one_line_at_error(program, start, checkpoint):
    publisher = start("publish", "--model", checkpoint("llama", "b"), "--log-format", "json")
    engine = start("serve", "--model", checkpoint("llama", "a"), "--tp", 2, "--log-format", "json")
    program.reload(engine, "--publisher", publisher.endpoint, "--version", "no-such-run@7", status=1)
    os.kill(publisher.pids[0], signal.SIGKILL)
    program.reload(engine, "--publisher", publisher.endpoint, status=1)

    failed = [entry for entry in entries(engine) if entry["level"] == "error" and entry["component"] == "serve"]
    assert [entry["fields"]["code"] for entry in failed] == ["not_found", "unavailable"]
    assert all(entry["message"].startswith("reload: ") for entry in failed)
    assert all(entry["fields"]["peer"] == publisher.endpoint for entry in failed)
    assert len({entry["fields"]["session"] for entry in failed}) == 2
    assert len(of_syncs(engine, "synced")) == 1 and of_syncs(publisher, "served") == []  # that of its own --model
    assert any("no-such-run" in entry["message"] and entry["level"] == "warning" for entry in entries(publisher))


def test_a_rank_that_dies_leaves_a_log_of_whole_lines(program, start, checkpoint):
    publisher = start("publish", "--model", checkpoint("llama", "b"), "--log-format", "json")
    engine = start("serve", "--model", checkpoint("llama", "a"), "--tp", 2, "--log-format", "json",
                   failpoints="rank1:quantize=kill@2")
    assert not program.reload(engine, "--publisher", publisher.endpoint, status=None)["ok"]
    assert program.reload(engine, "--publisher", publisher.endpoint)["ok"]
    components = {entry["component"] for entry in entries(engine)}
    assert "serve" in components and "rank1" in components
    assert len(of_syncs(engine, "synced")) == 2
    wait_until(lambda: of_syncs(publisher, "served"), SOON, str(publisher))


def test_a_program_that_cannot_begin_says_so_in_its_log(program, tmp_path):
    outcome = program.run("serve", "--model", tmp_path / "nothing", "--log-format", "json", status=1)
    entry = json.loads(outcome.errors.splitlines()[-1])
    assert entry["level"] == "error" and "nothing" in entry["message"]
    assert outcome.json["error"]["message"] in entry["message"]


def test_the_text_form_has_the_same_facts(program, start, checkpoint):
    publisher = start("publish", "--model", checkpoint("llama", "b"), "--lineage", "run", "--step", 3)
    engine = start("serve", "--model", checkpoint("llama", "a"))
    assert program.reload(engine, "--publisher", publisher.endpoint)["ok"]
    await_text = "[publish] info: served session="
    wait_until(lambda: await_text in publisher.errors(), SOON, str(publisher))
    line = re.search(r"\[serve\] info: synced session=(\S+) version=run@3 digest=\S+ bytes=\d+ seconds=\S+ channel=\S+ "
                     rf"peer={re.escape(publisher.endpoint)}\n", engine.errors())
    assert line and f"served session={line[1]} version=run@3" in publisher.errors()


def test_an_adapter_that_is_loaded_by_itself_leaves_one_line(program, start, checkpoint, checkpoint_cache):
    import adapters

    kept = adapters.Kept(checkpoint_cache)
    base = kept.base(checkpoint("llama", "a"))
    folder = kept.adapter(base, "all-linear", "plain", 0)
    publisher = start("publish", "--adapter", f"policy={folder}", "--lineage", "run", "--step", 3)
    engine = start("serve", "--model", base, "--adapter-slots", 2, "--max-adapter-rank", 16, "--log-format", "json",
                   "--adapter", f"first={folder}")
    loaded = program.run("adapter", "load", "--engine", engine.endpoint, "--name", "policy", "--publisher", publisher.endpoint).json
    outcome = loaded["outcomes"][0]
    first, second = of_syncs(engine, "synced adapter")
    assert first["adapter"] == "first" and first["peer"] == str(folder)
    assert second["adapter"] == "policy" and second["version"] == "run@3" and second["digest"] == outcome["version"]["digest"]
    assert second["bytes"] == outcome["report"]["bytes"] > 0 and second["peer"] == publisher.endpoint
    assert second["channel"] == outcome["report"]["channel"]["name"]
