"""A tensor, or a part of one, as a trainer's rank publishes it: the border between this package, which knows torch, and
the publisher, which takes anything that DLPack can carry."""

from __future__ import annotations

from typing import Any, NamedTuple


class Piece(NamedTuple):
    """One box of one tensor. `tensor` is a torch.Tensor: detached, dense, not lazily negated, on CPU or CUDA, with any
    strides. It may be a view of the trainer's own memory."""

    name: str  # as in the checkpoint that save_pretrained would write
    tensor: Any
    whole: tuple[int, ...] | None = None  # the shape of the whole tensor; None: this is all of it
    offsets: tuple[int, ...] | None = None  # where in the whole this box begins; None: this is all of it


class Spec(NamedTuple):
    """What a piece will be, known before any tensor is read."""

    name: str
    dtype: Any  # a torch.dtype
    shape: tuple[int, ...]  # of the piece
    whole: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None
