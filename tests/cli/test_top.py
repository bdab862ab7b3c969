"""layercast top behind a terminal that an emulator shows: real engines, and peers that are dead or mean it ill."""

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time

import pyte
import pytest

from program import wait_until

NOBODY = "tcp://127.0.0.1:9"
SOON = 30
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?25h\x1b[?1049l"


class Terminal:
    """The command, whose standard output is a terminal of so many columns and rows."""

    def __init__(self, program, *arguments, columns=140, rows=30):
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.drawn = b""
        self._master, slave = os.openpty()
        self.resize(columns, rows)
        command = [program.path, "top", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE,
                                        env={**os.environ, "TERM": "xterm"}, start_new_session=True)
        os.close(slave)

    def resize(self, columns, rows):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def _read(self, seconds):
        readable, _, _ = select.select([self._master], [], [], seconds)
        with contextlib.suppress(OSError):  # nobody has the other end any more
            some = os.read(self._master, 65536) if readable else b""
            self.drawn += some
            self._stream.feed(some)
            return bool(some)
        return False

    @property
    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def await_text(self, *words):
        deadline = time.monotonic() + SOON
        while not all(word in self.text for word in words):
            assert time.monotonic() < deadline and self.process.poll() is None, f"expected {words}, got\n{self.text}"
            self._read(0.1)
        return self.text

    def end(self, number):
        self.process.send_signal(number)
        status = self.process.wait(SOON)
        while self._read(0):
            pass
        return status

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        os.close(self._master)


@pytest.fixture
def top(program):
    running = []

    def start(*arguments, **options):
        running.append(Terminal(program, *arguments, **options))
        return running[-1]

    yield start
    for terminal in running:
        terminal.kill()


def name(version):
    return f"{version['lineage']}@{version['step']}"


def test_engines_and_publishers_are_shown_and_a_sync_is_seen(top, program, start, folders):
    publisher = start("publish", "--model", folders["b"], "--lineage", "run-9", "--step", 5)
    engines = [start("serve", "--model", folders["a"], "--tp", tp) for tp in (1, 2)]
    terminal = top("--engine", ",".join(engine.endpoint for engine in engines), "--publisher", publisher.endpoint)
    terminal.await_text(*(f"engine {engine.endpoint}  serving  {name(engine.version)}" for engine in engines),
                        f"publisher {publisher.endpoint}  1 versions", "run-9@5", "0 do not answer")
    program.reload(engines[1], "--publisher", publisher.endpoint)
    shown = terminal.await_text(f"engine {engines[1].endpoint}  serving  run-9@5  2 ranks, shm ")
    assert f"engine {engines[0].endpoint}  serving  {name(engines[0].version)}  1 ranks" in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_put_back_however_it_ends(number, top, engine):
    terminal = top("--engine", engine.endpoint)
    terminal.await_text("serving")
    assert terminal.drawn.startswith(ENTER) and LEAVE not in terminal.drawn
    assert terminal.end(number) == 0
    assert terminal.drawn.endswith(LEAVE)


def test_the_terminal_is_put_back_when_the_program_crashes(top, engine):
    terminal = top("--engine", engine.endpoint)
    terminal.await_text("serving")
    assert terminal.end(signal.SIGABRT) == -signal.SIGABRT
    assert terminal.drawn.endswith(LEAVE)


def test_a_dead_engine_is_shown_and_holds_up_no_other(top, engine):
    terminal = top("--engine", f"{NOBODY},{engine.endpoint}")
    terminal.await_text(f"engine {engine.endpoint}  serving")
    terminal.await_text(f"engine {NOBODY}  never answered", "NO ANSWER: ", "1 do not answer")


def test_an_engine_that_dies_is_shown_with_what_it_was(top, start, folders):
    doomed = start("serve", "--model", folders["a"])
    terminal = top("--engine", doomed.endpoint)
    terminal.await_text("0 do not answer", name(doomed.version))
    doomed.kill()
    terminal.await_text("NO ANSWER: ", "1 do not answer", name(doomed.version))


def test_the_picture_follows_the_size_of_the_terminal(top, engine):
    terminal = top("--engine", engine.endpoint, columns=140)
    terminal.await_text(f"engine {engine.endpoint}  serving")
    terminal.resize(12, 5)
    terminal.process.send_signal(signal.SIGWINCH)
    fits = ["layercast t", "engine tcp:"]
    wait_until(lambda: terminal._read(0.1) and [line.rstrip() for line in terminal.screen.display[:2]] == fits, SOON,
               f"expected {fits}, got\n{terminal.text}")


def test_a_hostile_name_does_nothing_to_the_terminal(top, fake):
    lineage = "\x1b[2J\x1b]0;owned\x07\x1b[?1049l\n\u202e\u009b31mrun"
    version = {"lineage": lineage, "step": 1, "digest": "0" * 32}
    hostile = fake({"state": "serving\x1b[5m", "version": version, "pids": [1], "progress": None, "channel": None,
                    "last_error": {"code": "internal", "message": "\x1b[1;1Hgone\r\n" + "x" * 1000}})
    terminal = top("--engine", hostile)
    terminal.await_text(r"serving\x1b[5m", r"\x1b[2J\x1b]0;owned\x07", "layercast top: 1 peers")
    assert terminal.screen.title == "" and b"\x1b[2J" not in terminal.drawn and b"\x1b[?1049l" not in terminal.drawn
    assert b"\x07" not in terminal.drawn and "\u202e".encode() not in terminal.drawn


def test_without_a_terminal_it_is_one_plain_picture(program, engine):
    outcome = program.for_people("top", "--engine", f"{engine.endpoint},{NOBODY}")
    assert "\x1b" not in outcome.output and f"engine {engine.endpoint}  serving" in outcome.output
    assert f"engine {NOBODY}  never answered" in outcome.output
    seen = program.run("top", "--engine", f"{engine.endpoint},{NOBODY}").json["engines"]
    assert seen[0]["error"] is None and seen[0]["status"]["state"] == "serving"
    assert NOBODY in seen[1]["error"] and seen[1]["status"] is None


def test_once_is_one_plain_picture_also_on_a_terminal(top, engine):
    terminal = top("--engine", engine.endpoint, "--once")
    while terminal._read(SOON):
        pass
    assert terminal.process.wait(SOON) == 0
    assert b"\x1b" not in terminal.drawn and b"serving" in terminal.drawn


def test_without_a_peer_it_is_wrong_usage(program):
    assert "--engine or --publisher" in program.refused("top", status=2)["message"]
