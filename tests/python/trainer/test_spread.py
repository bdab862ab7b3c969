"""Which of several copies is published: exactly one, and ranks share the bytes."""

import random

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
