"""The smallest publisher and receiver, as a reader of examples/ would start them: every Enter is a step, or a reload."""

import os
import pathlib
import re
import subprocess

import pytest

PROGRAMS = pathlib.Path(os.environ["LAYERCAST_PROGRAMS"])
CHECKPOINT = pathlib.Path(__file__).parents[2] / "examples" / "checkpoint_flip" / "add"


class Program:
    def __init__(self, name, *arguments):
        self.process = subprocess.Popen([PROGRAMS / name, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def line(self):
        line = self.process.stdout.readline()
        assert line, f"ended with {self.process.wait(timeout=30)}"
        return line

    def enter(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.line()

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=30)


@pytest.fixture
def start():
    programs = []

    def start_one(*arguments):
        programs.append(Program(*arguments))
        return programs[-1]

    yield start_one
    for program in programs:
        program.process.kill()
        program.process.wait()


def test_a_foreign_engine_serves_what_was_published_last(start):
    publisher = start("minimal_publisher", CHECKPOINT)
    version, endpoint = re.match(r"(\S+) at (\S+)", publisher.line()).groups()
    receiver = start("minimal_receiver", endpoint, CHECKPOINT)
    loaded = [receiver.line()]
    assert loaded[0].startswith(version + ":")
    for _ in range(2):
        version = publisher.enter().split(" at ")[0]
        loaded.append(receiver.enter())
        assert loaded[-1].startswith(version + ":")
    served = [line.split("serving ")[1] for line in loaded]
    assert served[0] != served[1]
    assert served[0] == served[2]  # flipping every sign twice gives the first weights back
    assert (receiver.end(), publisher.end()) == (0, 0)


def test_a_receiver_without_a_publisher_says_so_and_fails(start):
    receiver = start("minimal_receiver", "tcp://127.0.0.1:1", CHECKPOINT)
    assert receiver.process.wait(timeout=60) == 1


def test_a_controller_says_what_became_of_an_engine_that_is_not_there(start):
    controller = start("minimal_controller", "tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
    assert re.match(r"tcp://127.0.0.1:2: failed, and serves an unknown version; .*silent", controller.line())
    assert controller.end() == 1


@pytest.mark.parametrize("name", ["minimal_publisher", "minimal_receiver", "minimal_controller", "own_family"])
def test_without_arguments_each_says_what_it_takes(name):
    done = subprocess.run([PROGRAMS / name], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith(f"usage: {name} ")
