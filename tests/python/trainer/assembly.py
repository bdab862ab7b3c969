"""Puts pieces together, slowly and obviously: every element is written exactly once, or a test fails."""

import torch


def assembled(pieces):
    """name -> tensor, of pieces of all ranks."""
    whole, written = {}, {}
    for piece in pieces:
        shape = tuple(piece.tensor.shape) if piece.whole is None else piece.whole
        if piece.name not in whole:
            whole[piece.name] = torch.empty(shape, dtype=piece.tensor.dtype)
            written[piece.name] = torch.zeros(shape, dtype=torch.int64)
        assert tuple(whole[piece.name].shape) == shape and whole[piece.name].dtype == piece.tensor.dtype, piece.name
        offsets = (0,) * len(shape) if piece.offsets is None else piece.offsets
        box = tuple(slice(o, o + n) for o, n in zip(offsets, piece.tensor.shape, strict=True))
        assert whole[piece.name][box].shape == piece.tensor.shape, f"{piece.name} leaves its tensor"
        whole[piece.name][box] = piece.tensor
        written[piece.name][box] += 1
    for name, times in written.items():
        assert bool((times == 1).all()), f"{name}: elements are published {times.unique().tolist()} times"
    return whole


def assert_same(got, expected):
    """Names, dtypes, shapes and bytes."""
    assert sorted(got) == sorted(expected)
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, name
        assert bytes_of(got[name]) == bytes_of(tensor), name


def bytes_of(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def assert_as_announced(pieces):
    """What specs() says is what an iteration gives, in its order."""
    made = list(pieces)
    assert len(pieces) == len(made)
    assert [(s.name, s.dtype, s.shape, s.whole, s.offsets) for s in pieces.specs()] == [
        (p.name, p.tensor.dtype, tuple(p.tensor.shape), p.whole, p.offsets) for p in made]
    return made
