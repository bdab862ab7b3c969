"""Boxes of strided copies, and what scratch memory holds, against the elements one by one."""

import math
import random

import pytest
import torch
from layercast.host.memory import Copied, Filled, Memory
from layercast.host.slices import MOST_PARTS, Axes, NoBox, Slice, boxes_of, contiguous


def numbered(shape):
    """A contiguous tensor whose elements are their places."""
    return torch.arange(math.prod(shape)).reshape(shape)


def slice_of(view, name=""):
    return Slice(name, view.storage_offset(), tuple(view.shape), tuple(view.stride()))


def indexed(tensor, box):
    return tensor[tuple(slice(begin, begin + extent) for begin, extent in zip(box.begin, box.extent))]


def copied_by_boxes(to, source, to_shape, source_shape):
    out, given = torch.full(to_shape, -1), numbered(source_shape)
    for source_box, box, transposed in boxes_of(to, to_shape, source, source_shape):
        part, into = indexed(given, source_box), indexed(out, box)
        assert part.numel() == into.numel() == math.prod(box.extent)
        part = part.transpose(-1, -2) if transposed else part
        assert (into == -1).all(), "an element is copied twice"
        into.copy_(part.reshape(into.shape))
    return out


def copied_by_elements(to, source, to_shape, source_shape):
    out, given = torch.full(to_shape, -1), numbered(source_shape)
    torch.as_strided(out, to.size, to.stride, to.offset).copy_(
        torch.as_strided(given, source.size, source.stride, source.offset)
    )
    return out


def random_view(random, base, steps):
    """Views as loaders take them."""
    view = base
    for _ in range(steps):
        d = random.randrange(max(view.dim(), 1))
        kind = random.choice(["narrow", "narrow", "transpose", "chunk", "split", "unsqueeze", "permute", "flatten"])
        if kind == "unsqueeze":
            view = view.unsqueeze(d)
        elif view.dim() == 0:
            continue
        elif kind == "narrow":
            begin = random.randrange(view.shape[d])
            view = view.narrow(d, begin, random.randint(1, view.shape[d] - begin))
        elif kind == "transpose":
            view = view.transpose(d, random.randrange(view.dim()))
        elif kind == "permute":
            view = view.permute(random.sample(range(view.dim()), view.dim()))
        elif kind == "chunk":
            view = random.choice(view.chunk(random.randint(1, 4), d))
        elif kind == "split" and view.shape[d] > 1:
            inner = random.choice([n for n in range(1, view.shape[d] + 1) if view.shape[d] % n == 0])
            view = view.unflatten(d, (-1, inner))
        elif kind == "flatten" and view.is_contiguous():
            view = view.view(-1)
    return view


def random_shape(random, most=4):
    return tuple(random.choice([1, 2, 3, 4, 6, 8]) for _ in range(random.randint(1, most)))


def source_for(random, size):
    """A view of that size, of a contiguous tensor with other elements around it, in another order, or spread."""
    order = random.sample(range(len(size)), len(size))
    spread = [random.random() < 0.08 for _ in size]
    inner = [1 if spread[d] else size[d] for d in order]
    around = [(random.choice([0, 0, 0, 1]), random.choice([0, 0, 0, 2])) for _ in inner]
    shape = [before + extent + after for extent, (before, after) in zip(inner, around)]
    base = numbered(shape or (1,))
    view = base if shape else base[0]
    for d, (extent, (before, _)) in enumerate(zip(inner, around)):
        view = view.narrow(d, before, extent)
    view = view.permute([order.index(d) for d in range(len(size))]).expand(size)
    while len(shape) > 1 and random.random() < 0.5:  # fewer axes
        d = random.randrange(len(shape) - 1)
        shape[d : d + 2] = [shape[d] * shape[d + 1]]
    return view, tuple(shape or (1,))


@pytest.mark.parametrize("seed", range(4))
def test_boxes_copy_the_elements_that_the_views_do(seed):
    dice, refused, count = random.Random(seed), 0, 250
    for _ in range(count):
        to_shape = random_shape(dice)
        to = slice_of(random_view(dice, numbered(to_shape), dice.randint(0, 4)))
        view, source_shape = source_for(dice, to.size)
        source = slice_of(view)
        try:
            copied = copied_by_boxes(to, source, to_shape, source_shape)
        except NoBox:
            refused += 1
            continue
        wanted = copied_by_elements(to, source, to_shape, source_shape)
        assert torch.equal(copied, wanted), (to, to_shape, source, source_shape)
    assert refused < count / 20


WEIGHT = numbered((12, 8))
STACK = numbered((3, 4, 8))
ROWS = [f"[{8 * i}:{8 * i + 8}] [1:2, {i}:{i + 1}, 0:8]" for i in range(4)]
MATRICES = [f"[{4 * i}:{4 * i + 4}, 0:8] [{i}:{i + 1}, 0:4, 0:8]" for i in range(3)]


@pytest.mark.parametrize(
    ("to", "to_shape", "source", "source_shape", "expected"),
    [
        (WEIGHT, (12, 8), WEIGHT, (12, 8), ["[0:12, 0:8] [0:12, 0:8]"]),
        (WEIGHT[4:8], (12, 8), WEIGHT[:, :4].t()[:, 2:10], (12, 8), ["[2:10, 0:4] [4:8, 0:8] t"]),
        # A box of other axes could not come in parts.
        (STACK[1], (3, 4, 8), numbered((32,)).view(4, 8), (32,), ROWS),
        (STACK, (3, 4, 8), WEIGHT.view(3, 4, 8), (12, 8), MATRICES),
        (WEIGHT[:, 0], (12, 8), numbered((12, 1))[:, 0], (12, 1), ["[0:12, 0:1] [0:12, 0:1]"]),
        (WEIGHT[0, 0], (12, 8), torch.tensor(3), (), ["[] [0:1, 0:1]"]),
        (numbered((2,)), (2,), torch.tensor(3).expand(2), (), ["[] [0:1]", "[] [1:2]"]),
        # every third row belongs to one of three
        (STACK, (3, 4, 8), WEIGHT.view(4, 3, 8).transpose(0, 1), (12, 8), 4),
        (STACK[:, 0], (3, 4, 8), STACK[:, 3], (3, 4, 8), ["[0:3, 3:4, 0:8] [0:3, 0:1, 0:8]"]),
        # a transposed stack
        (STACK, (3, 4, 8), numbered((3, 8, 4)).transpose(1, 2), (3, 8, 4), ["[0:3, 0:8, 0:4] [0:3, 0:4, 0:8] t"]),
        # rows that begin within rows
        (numbered((10,)), (10,), WEIGHT.view(-1)[3:13], (12, 8), ["[0:1, 3:8] [0:5]", "[1:2, 0:5] [5:10]"]),
        (WEIGHT[:0], (12, 8), WEIGHT[:0], (12, 8), []),
    ],
)
def test_copies_of_loaders_are_these_boxes(to, to_shape, source, source_shape, expected):
    boxes = boxes_of(slice_of(to), to_shape, slice_of(source), source_shape)
    said = [f"{source_box} {box}{' t' if transposed else ''}" for source_box, box, transposed in boxes]
    assert said == expected if isinstance(expected, list) else len(said) == expected


@pytest.mark.parametrize(
    ("to", "source", "words"),
    [
        (contiguous((MOST_PARTS + 1,)), Slice("", 0, (MOST_PARTS + 1,), (0,)), f"more than {MOST_PARTS} boxes"),
        (contiguous((MOST_PARTS + 1,)), Slice("", 0, (MOST_PARTS + 1,), (2,)), "of each 2 elements along an axis"),
        (contiguous((2, 2)), Slice("", 0, (2, 2), (1, 1)), "twice"),
    ],
)
def test_what_is_no_copy_of_boxes_is_refused(to, source, words):
    with pytest.raises(NoBox, match=words):
        boxes_of(to, to.size, source, (4 * MOST_PARTS,))


def test_axes_are_mixed_radix_digits():
    axes = Axes((12, 4), 36)
    assert (axes.stride, axes.extent) == ((12, 4, 1), (3, 3, 4))
    assert axes.digits(12 + 2 * 4 + 3) == (1, 2, 3)
    with pytest.raises(NoBox, match="steps of 4 and of 6"):
        Axes((4, 6), 36)


@pytest.mark.parametrize("seed", range(4))
def test_memory_holds_what_was_written_last(seed):
    """Writes of random pieces of sources and of numbers into scratch, of which random pieces are read."""
    dice, refused, count = random.Random(seed), 0, 100
    for _ in range(count):
        shape = random_shape(dice, 3)
        elements = math.prod(shape)
        memory, real = Memory("scratch", elements, "nothing"), torch.full(shape, -1)
        sources = []
        for _ in range(dice.randint(1, 5)):
            where = random_view(dice, real, dice.randint(0, 3))
            if dice.random() < 0.2:
                memory.write(slice_of(where), Filled(7.0))
                where.fill_(7)
                continue
            view, _ = source_for(dice, tuple(where.shape))
            memory.write(slice_of(where), Copied(slice_of(view, str(len(sources)))))
            sources.append(view)
            where.copy_(view)
        piece = random_view(dice, real, dice.randint(0, 3))
        if piece.dim() and dice.random() < 0.2:
            piece = piece.unsqueeze(0).expand(3, *piece.shape)
        got = torch.full(piece.shape, -2)
        try:
            parts = memory.read(slice_of(piece), contiguous(piece.shape))
        except NoBox:
            refused += 1
            continue
        for to, content in parts:
            into = torch.as_strided(got, to.size, to.stride, to.offset)
            assert (into == -2).all(), "an element has two contents"
            if isinstance(content, Copied):
                of = content.source
                into.copy_(torch.as_strided(sources[int(of.tensor)], of.size, of.stride, of.offset))
            else:
                into.fill_(-1 if content == "nothing" else content.value)
        assert torch.equal(got, piece)
    assert refused < count / 4


def test_a_source_that_nothing_was_written_into_holds_itself():
    memory, to, piece = Memory("w", 12), contiguous((2, 3), "p"), Slice("w", 1, (2, 3), (6, 1))
    assert memory.read(piece, to) == [(to, Copied(piece))]
    memory.write(Slice("w", 0, (2,), (1,)), Filled(0.0))
    assert memory.written
    assert memory.read(Slice("w", 0, (4,), (1,)), contiguous((4,), "p")) == [
        (Slice("p", 2, (2,), (1,)), Copied(Slice("w", 2, (2,), (1,)))),
        (Slice("p", 0, (2,), (1,)), Filled(0.0, "w")),
    ]
