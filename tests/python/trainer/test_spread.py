"""Which of several copies is published: exactly one, and ranks share the bytes."""

import random

import pytest
import torch
from layercast.trainer import source_of
from layercast.trainer.spread import Shared, choose, one_copy_each


def plain(elements, ranks):
    return Shared(2, one_copy_each(range(ranks), 0, elements).copies)


def halves(elements, pairs):
    """A tensor in two parts, which each pair of ranks holds."""
    return Shared(2, tuple(((a, elements - elements // 2), (b, elements // 2)) for a, b in pairs))


def test_tensors_that_all_ranks_hold_are_spread_by_bytes():
    sizes = [random.Random(1).randrange(1, 1000) for _ in range(200)]
    chosen, load = choose([plain(size, 8) for size in sizes])
    assert set(chosen) == set(range(8))
    assert sum(load.values()) == 2 * sum(sizes)
    assert max(load.values()) - min(load.values()) <= 2 * max(sizes)


def test_replicas_of_shards_are_spread_too():
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    _, load = choose([halves(100, pairs) for _ in range(40)])
    assert load == {rank: 10 * 50 * 2 for rank in range(8)}


def test_whole_tensors_fill_what_shards_leave_empty():
    only = Shared(2, (((0, 500),),))
    chosen, load = choose([plain(100, 2) for _ in range(5)] + [only])
    assert chosen == [1, 1, 1, 1, 1, 0] and load == {0: 1000, 1: 1000}


def test_a_rank_with_an_empty_part_publishes_nothing():
    assert choose([Shared(4, (((1, 3),),))]) == ([0], {1: 12})


def test_the_answer_does_not_depend_on_which_rank_asks():
    tensors = [plain(7 * i + 1, 3) for i in range(20)] + [halves(9, [(0, 1), (2, 0)])]
    assert choose(tensors) == choose(list(tensors))


@pytest.fixture
def rank_0_of_2():
    """torch.distributed of two ranks, of which this process is the first, and nobody the second."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def test_who_says_its_rank_publishes_all_that_it_is_given(rank_0_of_2):
    weights = {"stage.a": torch.ones(3), "stage.b": torch.ones(4)}
    shared = source_of(weights, dtype=None, adapters="merge", gather=False)
    assert shared.part == (0, 2) and len(list(shared.pieces)) == 1
    alone = source_of(weights, dtype=None, adapters="merge", gather=False, alone=True)
    assert [piece.name for piece in alone.pieces] == ["stage.a", "stage.b"]
    module = torch.nn.Linear(3, 4)
    assert len(list(source_of(module, dtype=None, adapters="merge", gather=False, alone=True).pieces)) == 2
