"""An update of all ranks of an engine together: what both doors do."""

from __future__ import annotations

import uuid

from layercast.errors import Error
from layercast.sglang.rank import Rank
from layercast.sglang.together import gathered, together


def stage(rank: Rank, endpoint: str, lineage: str, step: int | None, timeout: float) -> None:
    """Starts to stage one version on all ranks: that which the first rank finds, if no step is named."""
    found = together(lambda: rank.newest(endpoint, lineage, step))[0]
    known = gathered((rank.engine or f"sglang-{uuid.uuid4().hex}", rank.attempt))
    rank.engine, rank.attempt = known[0][0], max(attempt for _, attempt in known) + 1
    together(lambda: rank.stage(endpoint, *found, timeout))


def prepare(rank: Rank, wait: float) -> None:
    """Raises unless the version is staged on all ranks, and all that a commit copies is made; waits so many seconds."""
    together(lambda: rank.prepare(wait))
    together(rank.make)


def commit(rank: Rank) -> None:
    """Commits on all ranks, or, if one refuses before the first write, on none.

    All are ``torn`` if one fails after it, until a version has been staged and committed on all.
    """
    prepare(rank, 0.0)
    try:
        together(rank.commit)
    except Error:
        rank.torn = True
        raise
