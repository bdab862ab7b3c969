"""What a reload did, on one rank."""

from __future__ import annotations

import json
from typing import Any

from layercast._native import Version


class Report:
    """The report of one reload: every field of the JSON that docs/cli.md describes is an attribute.

    ``version``, ``channel`` (a dict with its name and speed), ``bytes``, ``layers``, ``total_ms``, ``stage_ms``
    (milliseconds by stage), ``served_digest``, ``cast``, ``skipped``, ``out_of_order``, ``publishers`` and more.
    """

    def __init__(self, text: str) -> None:
        self._fields: dict[str, Any] = json.loads(text)
        of = self._fields.get("version")
        self.version = Version(of["lineage"], of["step"], of["digest"] or "") if isinstance(of, dict) else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"a report has no field '{name}'; it has {', '.join(self._fields)}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields]

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON has them."""
        return dict(self._fields)

    def __repr__(self) -> str:
        return f"Report({self.version}, {self.bytes} bytes over {self.channel['name']}, {self.total_ms:.1f} ms)"

    def _repr_html_(self) -> str:
        from layercast.notebook import table

        stages = [(stage, f"{milliseconds:.2f}") for stage, milliseconds in self.stage_ms.items()]
        return table(("stage", "ms"), [*stages, ("total", f"{self.total_ms:.2f}")], caption=repr(self))

    def plot(self, axes: Any = None) -> Any:
        """Draws the stages' milliseconds as bars; returns matplotlib's axes. Needs matplotlib."""
        from layercast.notebook import bars

        return bars(list(self.stage_ms), list(self.stage_ms.values()), "ms", str(self.version), axes)
