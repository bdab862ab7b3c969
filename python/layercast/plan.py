"""Load plans: where each tensor of a checkpoint goes on one rank of an engine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from layercast.notebook import table
from layercast.program import answer_of


@dataclass(frozen=True, slots=True)
class Placement:
    """A box of a checkpoint's tensor, and the box of a layer's parameter that it lands in.

    ``source`` and ``destination`` are half-open ranges, one for each dimension.
    """

    tensor: str
    dtype: str
    source: tuple[tuple[int, int], ...]
    layer: str
    parameter: str
    destination: tuple[tuple[int, int], ...]
    shard: str | None
    transposed: bool


class LoadPlan:
    """The load plan of one rank. Iterates over its placements.

    Args:
        model: a folder with a config.json and, without ``publisher``, a checkpoint; headers alone are read.
        tp_rank, tp_size, pp_rank, pp_size: which part of the model the rank holds.
        quantization: a recipe, whose problems with the weights are listed too.
        publisher: endpoints of a publisher, whose newest version is planned for.

    ``problems`` lists all that does not fit, as text; a plan with problems is no error here. ``skipped``, ``cast``,
    ``elsewhere``, ``derived`` and ``nbytes`` (what the rank keeps) are as in docs/cli.md.

    Raises NotFound, InvalidArgument, Unsupported (the model's family), Unavailable (the publisher).
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        tp_rank: int = 0,
        tp_size: int = 1,
        pp_rank: int = 0,
        pp_size: int = 1,
        quantization: str = "none",
        publisher: str | Iterable[str] | None = None,
        load_format: str = "auto",
    ) -> None:
        arguments = ["plan", "--model", os.fspath(model), "--tp", str(tp_size), "--rank", str(tp_rank)]
        arguments += ["--quantization", quantization, "--load-format", load_format]
        if pp_size > 1:
            arguments += ["--pp", str(pp_size), "--stage", str(pp_rank)]
        if publisher is not None:
            arguments += ["--publisher", publisher if isinstance(publisher, str) else ",".join(publisher)]
        answer = answer_of(*arguments)
        self.placements = [_placement(placement) for placement in answer["placements"]]
        self.problems: list[str] = answer["problems"]
        self.skipped: list[dict[str, Any]] = answer["skipped"]
        self.cast: list[dict[str, Any]] = answer["cast"]
        self.elsewhere: list[dict[str, Any]] = answer["elsewhere"]
        self.derived: list[dict[str, Any]] = answer["derived"]
        self.nbytes: int = answer["bytes"]

    def __iter__(self) -> Any:
        return iter(self.placements)

    def __len__(self) -> int:
        return len(self.placements)

    def __repr__(self) -> str:
        return f"LoadPlan({len(self)} placements, {self.nbytes} bytes, {len(self.problems)} problems)"

    def _repr_html_(self) -> str:
        head = ("tensor", "source", "layer", "parameter", "destination", "shard")
        rows = [
            (p.tensor, _ranges(p.source), p.layer, p.parameter, _ranges(p.destination), p.shard or "")
            for p in self.placements
        ]
        return table(head, rows, caption=repr(self))


def _placement(answer: dict[str, Any]) -> Placement:
    return Placement(
        answer["tensor"],
        answer["dtype"],
        tuple((begin, end) for begin, end in answer["source"]),
        answer["layer"],
        answer["parameter"],
        tuple((begin, end) for begin, end in answer["destination"]),
        answer["shard"],
        answer["transposed"],
    )


def _ranges(box: tuple[tuple[int, int], ...]) -> str:
    return "[" + ", ".join(f"{begin}:{end}" for begin, end in box) + "]"
