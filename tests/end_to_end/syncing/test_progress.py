"""How far a reload has come, while it is held in the middle: what an engine's and a publisher's status say, and what the
program draws on a terminal, and nowhere else."""

import os
import re
import signal
import subprocess

import pytest

from program import wait_until
from terminal import OnTerminal, Screen

HELD_AT = 8  # tensors that have come
RECIPE = "fp8_per_channel"
SHARE = re.compile(r"\b(\d+) % ([\d.]+)/([\d.]+ \w+)")


class HeldPublisher:
    """Streams a checkpoint, and stays in the middle of it until it is let go on."""

    def __init__(self, folder):
        command = [os.environ["LAYERCAST_PUBLISHER_DRIVER"], folder, "stream", "layer", f"hold={HELD_AT}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def publisher(checkpoint):
    publisher = HeldPublisher(checkpoint("qwen3", "b"))
    yield publisher
    publisher.kill()


@pytest.fixture
def engine(start, checkpoint):
    return start("serve", "--model", checkpoint("qwen3", "a"), "--tp", 2, "--quantization", RECIPE)


@pytest.fixture
def on_terminal(program):
    running = []

    def run(*arguments, columns=200):
        running.append(OnTerminal([program.path, *arguments], columns))
        return running[-1]

    yield run
    for terminal in running:
        terminal.kill()


def is_held(progress):
    return progress is not None and all(0 < rank["bytes"] < rank["bytes_total"] for rank in progress["ranks"])


def await_held(program, engine):
    wait_until(lambda: is_held(program.status(engine)["progress"]), 60, "no rank receives")
    return program.status(engine)


def is_halfway(bar):
    share = SHARE.search(bar)
    return share and 0 < int(share[1]) < 100


def test_the_status_says_which_version_is_under_way_and_how_far_each_rank_is(program, engine, publisher):
    assert program.status(engine)["progress"] is None
    reload = program.start("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint)
    status = await_held(program, engine)
    assert status["state"] == "receiving" and status["version"] == engine.version
    progress = status["progress"]
    assert (progress["version"]["lineage"], progress["version"]["step"], progress["stage"]) == ("wire", 1, "receive")
    assert progress["elapsed_ms"] > 0
    assert [rank["rank"] for rank in progress["ranks"]] == [0, 1]
    for rank in progress["ranks"]:
        assert rank["stage"] == "receive" and rank["layers"] < rank["layers_total"]
    for field in ("bytes", "bytes_total", "layers", "layers_total"):
        assert progress[field] == sum(rank[field] for rank in progress["ranks"])
    said = program.text("status", "--engine", engine.endpoint)
    for rank in progress["ranks"]:
        assert (f"rank {rank['rank']}: receive, {rank['bytes']} of {rank['bytes_total']} bytes, "
                f"{rank['layers']} of {rank['layers_total']} layers") in said
    assert "loads wire@1 since " in said

    publisher.go_on()
    report = program.finish(reload).json["engines"][0]["report"]
    assert (report["bytes"], report["layers"]) == (progress["bytes_total"], progress["layers_total"])
    assert program.status(engine)["progress"] is None


def test_a_publisher_says_what_those_have_who_read_from_it(program, engine, publisher):
    reload = program.start("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint)

    def readers():
        return program.run("status", "--publisher", publisher.endpoint).json["receivers"]

    wait_until(lambda: [reader["bytes"] > 0 for reader in readers()] == [True, True], 60, "no reader is counted")
    held = {rank["rank"]: rank["bytes"] for rank in await_held(program, engine)["progress"]["ranks"]}
    for reader in readers():
        assert reader["takes_from"] is None and 0 < reader["bytes"] <= 2 * held[reader["rank"]]
    publisher.go_on()
    assert program.finish(reload).json["ok"]


@pytest.mark.parametrize("columns", [40, 200])
def test_a_reload_shows_a_bar_on_a_terminal_and_wipes_it(columns, program, engine, publisher, on_terminal):
    reload = on_terminal("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint, columns=columns)
    bar = reload.await_bar(is_halfway)
    assert "receive" in bar
    if columns == 200:
        assert engine.endpoint in bar and "[#" in bar and re.search(r"rank [01] at \d+ %", bar)
    publisher.go_on()
    status, output = reload.end()
    assert status == 0 and "serves wire@1" in output
    assert not Screen(columns, reload.drawn).wrapped and reload.left() == []
    assert all(len(bar) < columns for bar in reload.bars)


def test_several_engines_share_one_line(program, engine, start, checkpoint, publisher, on_terminal):
    other = start("serve", "--model", checkpoint("qwen3", "a"), "--quantization", RECIPE)
    reload = on_terminal("reload", "--engine", f"{engine.endpoint},{other.endpoint}", "--publisher", publisher.endpoint,
                         "--json")
    assert "2 engines" in reload.await_bar(is_halfway)
    publisher.go_on()
    status, output = reload.end()
    assert status == 0 and output.startswith('{"ok":true') and reload.left() == []


def test_an_error_and_an_interruption_take_the_bars_place(engine, checkpoint, publisher, on_terminal):
    stopped = on_terminal("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint)
    stopped.await_bar(is_halfway)
    stopped.process.send_signal(signal.SIGINT)
    assert stopped.end() == (130, "")
    [said] = stopped.left()
    assert said.startswith("layercast reload: interrupted; the engines go on with it")
    publisher.go_on()

    doomed = HeldPublisher(checkpoint("qwen3", "b"))
    failed = on_terminal("reload", "--engine", engine.endpoint, "--publisher", doomed.endpoint)
    failed.await_bar(is_halfway)
    doomed.kill()
    status, output = failed.end()
    [said] = failed.left()
    assert status == 1 and "failed" in output and said.startswith("layercast reload: ") and doomed.endpoint in said


def test_without_a_terminal_nothing_is_drawn(program, engine, publisher):
    reload = program.start("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint)
    await_held(program, engine)
    publisher.go_on()
    assert program.finish(reload).errors == ""
    assert "\x1b" not in engine.errors() and "%" not in engine.errors()


@pytest.mark.parametrize("columns", [40, 200])
def test_an_engine_that_loads_shows_one_bar_for_all_ranks_with_one_total(columns, program, checkpoint, publisher,
                                                                        on_terminal, monkeypatch):
    monkeypatch.setenv("SPDLOG_LEVEL", "warn")  # the bar alone, without the line that tells of the sync
    serve = on_terminal("serve", "--model", checkpoint("qwen3", "a"), "--tp", 2, "--quantization", RECIPE,
                        "--load-format", "remote", "--publisher", publisher.endpoint, "--json", columns=columns)
    serve.await_bar(is_halfway)
    publisher.go_on()
    assert '"ready":true' in serve.line_of_output()
    shares = [SHARE.search(bar) for bar in serve.bars]
    assert len({share[3] for share in shares if share}) == 1
    percents = [int(share[1]) for share in shares if share]
    assert percents == sorted(percents)
    wait_until(lambda: serve.left() == [], 20, "the bar is still there")
    assert not Screen(columns, serve.drawn).wrapped
    serve.process.terminate()
    assert serve.end()[0] == 0


def test_lines_of_the_log_stand_above_the_bar(program, checkpoint, publisher, on_terminal):
    serve = on_terminal("serve", "--model", checkpoint("qwen3", "a"), "--tp", 2, "--quantization", RECIPE,
                        "--load-format", "remote", "--publisher", publisher.endpoint)
    serve.await_bar(is_halfway)
    serve.process.terminate()  # the log says so, below the bar that goes on
    assert serve.end()[0] == 0
    assert serve.left() and all(re.match(r"\d\d:\d\d:\d\d\.\d{3} \[[\w ]+\] \w+: [^%#]*$", line) for line in serve.left())
