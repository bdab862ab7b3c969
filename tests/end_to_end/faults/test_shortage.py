"""Engines and a publisher where descriptors or memory are short. Few descriptors are enough. No memory for a reload is
told as that, the old version is served on, and the next reload takes the new one once there is memory."""

import pathlib
import resource

import pytest

import program as layercast_program

FEW_DESCRIPTORS = 256
ENGINES = 8


@pytest.fixture(scope="module")
def start_with_few_descriptors(tmp_path_factory, program):
    """start("serve", ...) -> Daemon of which every process may have few descriptors."""
    limited = layercast_program.Program(program.path, tmp_path_factory.mktemp("few"),
                                        ["prlimit", f"--nofile={FEW_DESCRIPTORS}:{FEW_DESCRIPTORS}"])
    running = []

    def start(*arguments):
        running.append(limited.daemon(*arguments))
        return running[-1]

    yield start, limited
    for daemon in running:
        daemon.kill()


def test_eight_engines_and_a_publisher_need_few_descriptors(start_with_few_descriptors, checkpoint):
    start, limited = start_with_few_descriptors
    engines = [start("serve", "--model", checkpoint("llama", "a"), "--quantization", "none") for _ in range(ENGINES)]
    endpoints = ",".join(engine.endpoint for engine in engines)
    for mode, channel in (("stream", "shm"), ("stream", "zmq"), ("snapshot", "shm"), ("snapshot", "zmq")):
        publisher = start("publish", "--model", checkpoint("llama", "b"), "--mode", mode)
        for together in ((), ("--all-or-none",)):
            done = limited.run("reload", "--engine", endpoints, "--publisher", publisher.endpoint, "--channel", channel,
                               *together).json
            assert [outcome["ok"] for outcome in done["engines"]] == [True] * ENGINES, (mode, channel)
            assert {outcome["version"]["digest"] for outcome in done["engines"]} == {publisher.version["digest"]}
        publisher.stop()


def test_a_publisher_without_descriptors_says_how_many_would_do(program, checkpoint, tmp_path):
    short = layercast_program.Program(program.path, tmp_path, ["prlimit", "--nofile=20:20"])
    error = short.refused("publish", "--model", checkpoint("llama", "a"))
    assert error["code"] == "resource_exhausted"
    assert "RLIMIT_NOFILE (ulimit -n) is 20, expected at least" in error["message"]


def address_space(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize()


class NoMoreMemory:
    """As long as it lives, the process has no more address space than it has now, and `more` bytes."""

    def __init__(self, pid, more):
        self.pid = pid
        self.before = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (address_space(pid) + more, self.before[1]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        resource.prlimit(self.pid, resource.RLIMIT_AS, self.before)


def rank_of(engine):
    (rank,) = [pid for pid in engine.all_pids() if pid != engine.process.pid]
    return rank


# From where there is nothing at all to where there is enough.
MORE_MEMORY = (0, 100_000, 1_000_000, 12_000_000, 16_000_000, 20_000_000, 24_000_000, 64_000_000, 256_000_000)


@pytest.mark.parametrize("way", ["path", "shm", "zmq", "any"])
def test_a_rank_without_memory_says_so_and_serves_on(way, program, start, checkpoint, assert_serves):
    old, new = checkpoint("llama", "a"), checkpoint("llama", "b")
    engine = start("serve", "--model", old, "--quantization", "none")
    publisher = start("publish", "--model", new)
    from_where = {"path": ("--model", new), "any": ("--publisher", publisher.endpoint)}.get(
        way, ("--publisher", publisher.endpoint, "--channel", way))
    rank, failures = rank_of(engine), []
    for more in MORE_MEMORY:
        with NoMoreMemory(rank, more):
            outcome = program.reload(engine, *from_where, status=None)
        if outcome["ok"]:
            break
        failures.append((more, outcome["error"]))
        assert outcome["version"] == engine.version
        assert_serves(engine, old, "none")
    assert failures, "a rank whose address space cannot grow took a version"
    assert {error["code"] for _, error in failures} == {"resource_exhausted"}, failures
    assert any("RLIMIT_AS is" in error["message"] for _, error in failures), failures
    assert rank_of(engine) == rank, "the rank died"
    assert program.reload(engine, *from_where)["ok"]
    assert_serves(engine, new, "none")
