"""Kernel tensors in a file for each rank (`sharded_state`): a rank reads its own and no other's.
tests/end_to_end/loading/test_sharded_state.py has real engines, and what they write."""

import pytest
import safetensors.torch

import oracle

RECIPE = "fp8_per_channel"
RANKS = 4


@pytest.fixture
def write(checkpoint, tmp_path):
    """write(ranks) -> a folder of what these ranks serve of version b; and what each rank does."""
    served = [oracle.served_tensors(checkpoint("qwen3", "b"), RANKS, rank, RECIPE) for rank in range(RANKS)]
    folder = tmp_path / "state"
    folder.mkdir()

    def write(ranks):
        for rank in ranks:
            safetensors.torch.save_file(served[rank], file_of(folder, rank))
        return folder, served

    return write


def file_of(folder, rank):
    return folder / f"model-rank-{rank}-part-0.safetensors"


def damage(path):
    """Its header stays."""
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    path.write_bytes(content[:header] + bytes(byte ^ 0x5A for byte in content[header:]))


def assert_loads(load, model, folder, rank, expected):
    got = load(model, RANKS, rank, RECIPE, f"state={folder}", f"before={model}")
    assert not isinstance(got, str), got
    assert oracle.differences(got, expected) == []


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_rank_needs_no_file_but_its_own(rank, write, checkpoint, load):
    folder, served = write([rank])
    assert_loads(load, checkpoint("qwen3", "a"), folder, rank, served[rank])


@pytest.mark.parametrize("rank", range(RANKS))
def test_what_other_files_hold_is_not_read(rank, write, checkpoint, load):
    folder, served = write(range(RANKS))
    for other in set(range(RANKS)) - {rank}:
        damage(file_of(folder, other))
    assert_loads(load, checkpoint("qwen3", "a"), folder, rank, served[rank])


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_rank_takes_no_other_file_for_its_own(rank, write, checkpoint, load):
    folder, _ = write(set(range(RANKS)) - {rank})
    message = load(checkpoint("qwen3", "a"), RANKS, rank, RECIPE, f"state={folder}")
    assert f"expected {file_of(folder, rank)}, which is not there" in message
