"""What an engine's own loader does with a checkpoint, written down once: a load plan for any architecture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from layercast.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class Box:
    """A half-open box of elements: in dimension d, ``extent[d]`` of them from ``begin[d]`` on."""

    begin: tuple[int, ...]
    extent: tuple[int, ...]

    def __repr__(self) -> str:
        return "[" + ", ".join(f"{b}:{b + n}" for b, n in zip(self.begin, self.extent)) + "]"


@dataclass(frozen=True, slots=True)
class Copy:
    """A box of a source into a box of a parameter, of as many elements, in the same row-major order.

    ``transposed``: the last two dimensions of one box are those of the other, swapped.
    """

    source: str
    parameter: str
    source_box: Box
    box: Box
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """What a loader did on one rank.

    Args:
        sources: all tensors that the loader was given.
        parameters: what it filled, by full names, with this rank's shapes, before anything was quantized.
        copies: what went where.
        zeros: boxes of parameters, by name, that it filled with zeros (a vocabulary's padding).
        quantized: names of the parameters that the engine's recipe applies to.

    Takes the place of a model's folder in :class:`layercast.Receiver` and :func:`layercast.buffer_specs`.
    """

    sources: tuple[TensorSpec, ...]
    parameters: tuple[TensorSpec, ...]
    copies: tuple[Copy, ...]
    zeros: dict[str, tuple[Box, ...]]
    quantized: frozenset[str] = frozenset()

    def of_parameters(self, names: set[str]) -> Recording:
        """The part of the recording that fills these parameters, and knows no other tensors than theirs."""
        part = self.taking(names)
        used = {copy.source for copy in part.copies}
        return replace(part, sources=tuple(spec for spec in self.sources if spec.name in used))

    def taking(self, names: set[str]) -> Recording:
        """As if all that the loader was given had filled these parameters alone."""
        return Recording(
            self.sources,
            tuple(spec for spec in self.parameters if spec.name in names),
            tuple(copy for copy in self.copies if copy.parameter in names),
            {name: boxes for name, boxes in self.zeros.items() if name in names},
            self.quantized & names,
        )

    def native(self) -> dict[str, list[Any]]:
        """As the extension reads it."""
        source = {spec.name: index for index, spec in enumerate(self.sources)}
        parameter = {spec.name: index for index, spec in enumerate(self.parameters)}
        return {
            "sources": [(spec.name, spec.dtype, spec.shape) for spec in self.sources],
            "parameters": [
                (
                    spec.name,
                    spec.dtype,
                    spec.shape,
                    spec.name in self.quantized,
                    [(box.begin, box.extent) for box in self.zeros.get(spec.name, ())],
                )
                for spec in self.parameters
            ],
            "copies": [
                (
                    source[copy.source],
                    parameter[copy.parameter],
                    (copy.source_box.begin, copy.source_box.extent),
                    (copy.box.begin, copy.box.extent),
                    copy.transposed,
                )
                for copy in self.copies
            ],
        }
