"""What the ranks of sharded trainers publish, put together, is the whole model, each element once: over processes that
hold real DTensors (layouts.py)."""

import subprocess
import sys

import layouts
import pytest
import torch
from assembly import assert_same, assembled

REFUSED = {
    "refused_sharded_adapters": "Unsupported: tensor 'model.layers.0.self_attn.q_proj.weight'",
    "refused_sharded_fused": "Unsupported: tensor 'encoder.layer.0.mlp.gate_proj.weight': a checkpoint holds it put",
    "refused_partial": "Unsupported: tensor 'summed': expected placements Shard and Replicate, got (Partial",
    "refused_unknown_replicas": "FailedPrecondition: tensor 'w': expected a mesh that says which of ranks",
    "refused_fsdp1": "FailedPrecondition: module '' is wrapped by FullyShardedDataParallel",
}
CASES = [(world, layout.__name__) for world, all_of in layouts.LAYOUTS.items() for layout in all_of]


NOT_TOGETHER = ("gathered_masters", "gathered_fused", "gathered_adapters", "fsdp1_gathered", "rank_0_alone", "stages")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """What the processes of all layouts wrote. They are started once; if that fails, so does each test."""
    out = tmp_path_factory.mktemp("layouts")
    done = subprocess.run([sys.executable, layouts.__file__, out], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return out


def read(folder, world):
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world)]


@pytest.mark.parametrize(("world", "layout"), [case for case in CASES if case[1] not in REFUSED])
def test_ranks_publish_each_element_of_the_checkpoint_once(folder, world, layout):
    folder = folder / str(world) / layout
    ranks = read(folder, world)
    pieces = [piece for rank in ranks for piece in rank["pieces"]]
    assert_same(assembled(pieces), torch.load(folder / "expected.pt"))
    for rank in ranks:
        if rank["specs"] is not None:
            assert [(s.name, s.dtype, s.shape, s.whole, s.offsets) for s in rank["specs"]] == [
                (p.name, p.tensor.dtype, tuple(p.tensor.shape), p.whole, p.offsets) for p in rank["pieces"]]


@pytest.mark.parametrize(("world", "layout"), [case for case in CASES if case[1] in REFUSED])
def test_all_ranks_refuse_the_same_by_name(folder, world, layout):
    for rank in read(folder / str(world) / layout, world):
        assert REFUSED[layout] in rank["error"]


@pytest.mark.parametrize(("world", "layout"), [case for case in CASES if case[1] not in (*REFUSED, *NOT_TOGETHER)])
def test_ranks_that_publish_something_are_numbered(folder, world, layout):
    ranks = read(folder / str(world) / layout, world)
    publishing = [rank for rank in ranks if rank["pieces"]]
    assert [rank["part"] for rank in publishing] == [(i, len(publishing)) for i in range(len(publishing))]
    assert all(rank["part"] is None for rank in ranks if not rank["pieces"])


@pytest.mark.parametrize("layout", ["hsdp", "ddp", "tp_of_replicas"])
def test_replicas_share_the_bytes(folder, layout):
    ranks = read(folder / "4" / layout, 4)
    sizes = [sum(piece.tensor.nbytes for piece in rank["pieces"]) for rank in ranks]
    largest = max(piece.tensor.nbytes for rank in ranks for piece in rank["pieces"])
    assert max(sizes) - min(sizes) <= largest


@pytest.mark.parametrize("layout", ["nothing_left", "gathered_masters", "gathered_fused"])
def test_a_rank_with_nothing_to_publish_has_no_number(folder, layout):
    ranks = read(folder / "4" / layout, 4)
    assert [rank["part"] for rank in ranks] == [(0, 1), None, None, None]


def test_interleaved_runs_are_one_piece_each(folder):
    for rank, found in enumerate(read(folder / "4" / "interleaved", 4)):
        assert [(piece.offsets, tuple(piece.tensor.shape)) for piece in found["pieces"]] == [
            ((4 * rank, 0), (4, 3)), ((16 + 4 * rank, 0), (4, 3))]
