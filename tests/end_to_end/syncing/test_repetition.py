"""Reloading one version again and again changes nothing: no byte, no address, no file descriptor, no memory."""

import itertools

import pytest

import program as layercast_program

WARM_UP, ROUNDS, RELOADS_OF_A_ROUND = 10, 3, 30
RECIPE = "fp8_per_block"


@pytest.mark.parametrize("channel", ["shm", "zmq"])
def test_ninety_reloads_of_one_version_change_nothing(channel, program, start, checkpoint, assert_serves):
    folder = checkpoint("qwen3", "a")
    engine = start("serve", "--model", folder, "--tp", 2, "--quantization", RECIPE, "--chunk-bytes", 65536)
    publisher = start("publish", "--model", folder)
    watched = engine.all_pids() + publisher.all_pids()

    def reload():
        done = program.reload(engine, "--publisher", publisher.endpoint, "--channel", channel)
        assert done["version"] == publisher.version
        return [(rank["pid"], rank["served_digest"], rank["buffers_digest"]) for rank in done["report"]["ranks"]]

    for _ in range(WARM_UP):
        first = reload()
    files = {pid: layercast_program.open_files(pid) for pid in watched}
    memory = [{pid: layercast_program.resident_bytes(pid) for pid in watched}]
    for _ in range(ROUNDS):
        for _ in range(RELOADS_OF_A_ROUND):
            assert reload() == first
        memory.append({pid: layercast_program.resident_bytes(pid) for pid in watched})
    # A connection that a command has just ended may take a moment to go.
    layercast_program.wait_until(lambda: all(layercast_program.open_files(pid) <= files[pid] for pid in watched), 5,
                                 "more open files than before")
    # What leaks grows in every round; an allocator takes another page now and then.
    growth = {pid: [after[pid] - before[pid] for before, after in itertools.pairwise(memory)] for pid in watched}
    assert max(min(of_rounds) for of_rounds in growth.values()) < 10_000 * RELOADS_OF_A_ROUND, growth
    assert_serves(engine, folder, RECIPE)


def test_a_to_b_and_back_returns_to_the_bytes_of_a(program, start, checkpoint, assert_serves):
    a, b = checkpoint("llama", "a"), checkpoint("llama", "b")
    engine = start("serve", "--model", a, "--tp", 2, "--quantization", "fp8_per_tensor")
    before = program.status(engine)["ranks"]
    for folder in (b, a):
        assert program.reload(engine, "--model", folder)["ok"]
        assert_serves(engine, folder, "fp8_per_tensor")
    assert program.status(engine)["ranks"] == before
    assert program.reload(engine)["ok"]  # the checkpoint it came from, once more
    assert program.status(engine)["ranks"] == before
