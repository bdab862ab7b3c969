"""Tables and plots for notebooks. Used by reports and plans."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """An HTML table."""

    def row(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<table><caption>{html.escape(caption)}</caption>{row(head, 'th')}{body}</table>"


def bars(labels: Sequence[str], values: Sequence[float], unit: str, title: str, axes: Any = None) -> Any:
    """Horizontal bars, the first on top."""
    if axes is None:
        import matplotlib.pyplot as pyplot

        axes = pyplot.subplots(figsize=(6, 0.4 * len(labels) + 1))[1]
    axes.barh(range(len(labels)), list(values))
    axes.set_yticks(range(len(labels)), list(labels))
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title)
    return axes
