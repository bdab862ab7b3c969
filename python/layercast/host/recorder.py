"""Runs an engine's own ``load_weights`` once, on tensors without memory, and writes down every copy that it makes.

A view of a meta tensor shares its base's storage object. So (storage, offset, size, stride) says which piece of which
tensor a loader has in its hands, whatever views it took, and a dispatch mode that sees ``copy_`` sees all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from layercast.dtypes import safetensors_name, torch_dtype
from layercast.recording import Box, Copy, Recording
from layercast.tensor import TensorSpec
from layercast.host.slices import NoBox, Slice, boxes_of, through

_ATEN = torch.ops.aten
_FILLS = (_ATEN.fill_.Scalar, _ATEN.zero_.default)
_COPIES = (_ATEN._to_copy.default, _ATEN.clone.default)


class Loaded:
    """What a loader did: a recording of what can be replayed by copies, and by parameter why the rest cannot."""

    def __init__(self, recording: Recording, computed: dict[str, str]) -> None:
        self.recording = recording
        self.computed = computed


def record(
    load_weights: Callable[[Iterator[tuple[str, torch.Tensor]]], Any],
    targets: dict[str, torch.Tensor],
    sources: Iterable[TensorSpec],
) -> Loaded:
    """Records what ``load_weights`` does with these tensors.

    ``targets``: the parameters and buffers that it fills, by name, as it knows them before anything is quantized. They
    are not written, so that they may be on meta as well as live. Raises what the loader raises, for instance on a name
    that it does not know.
    """
    sources = tuple(sources)
    given = {spec.name: torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device="meta") for spec in sources}
    with torch.no_grad(), _Recorder(targets, given) as recorder:
        load_weights(iter(given.items()))
    return recorder.loaded(sources)


class _Recorder(TorchDispatchMode):
    def __init__(self, targets: dict[str, torch.Tensor], sources: dict[str, torch.Tensor]) -> None:
        super().__init__()
        # By storage: what the tensor is called, and the tensor itself, so that no other storage gets its address.
        self._known: dict[int, tuple[str, torch.Tensor]] = {}
        self._targets: dict[str, torch.Tensor] = {}
        self._copies: list[tuple[Slice, Slice]] = []
        self._fills: list[tuple[Slice, float]] = []
        self._scratch: dict[str, tuple[Slice, tuple[int, ...]]] = {}  # what fills each, and the shape in which it lies
        self._computed: dict[str, str] = {}
        for name, tensor in sources.items():
            self._know(f"source:{name}", tensor)
        for name, tensor in targets.items():
            self._know(f"target:{name}", tensor)  # a bias is live memory, which is not written
            self._targets[f"target:{name}"] = tensor

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [t for a in args for t in (a if isinstance(a, (list, tuple)) else [a]) if isinstance(t, torch.Tensor)]
        if not any(map(self._name, tensors)):
            return op(*args, **(kwargs or {}))
        if op is _ATEN.copy_.default:
            self._copy(args[0], args[1])
            return args[0]
        if op in _FILLS:
            self._fills.append((self._slice(args[0]), float(args[1]) if len(args) > 1 else 0.0))
            return args[0]
        if any(argument.alias_info and argument.alias_info.is_write for argument in op._schema.arguments):
            self._compute(args[0], f"computed by {op}")
            return args[0]
        out = op(*args, **{name: "meta" if name == "device" else value for name, value in (kwargs or {}).items()})
        if not isinstance(out, torch.Tensor) or self._name(out):
            return out  # a view, or a list of views
        if op in _COPIES:
            self._copy(out, args[0])
        else:
            self._compute(out, f"computed by {op}")
        return out

    def loaded(self, sources: tuple[TensorSpec, ...]) -> Loaded:
        shapes = {spec.name: spec.shape for spec in sources}
        copies: list[Copy] = []
        zeros: dict[str, list[Box]] = {}
        computed = {name.partition(":")[2]: why for name, why in self._computed.items() if name.startswith("target:")}
        for to, source in self._copies:
            name, source_name = to.tensor.partition(":")[2], source.tensor.partition(":")[2]
            try:
                for source_box, box, transposed in boxes_of(to, self._shape(to), source, shapes[source_name]):
                    copies.append(Copy(source_name, name, source_box, box, transposed))
            except NoBox as why:
                computed.setdefault(name, f"{source_name}: {why}")
        for to, value in self._fills:
            name = to.tensor.partition(":")[2]
            if not to.tensor.startswith("target:") or 0 in to.size:
                continue
            if value != 0:
                computed.setdefault(name, f"filled with {value}")
                continue
            try:
                for _, box, _ in boxes_of(to, self._shape(to), to, self._shape(to)):
                    zeros.setdefault(name, []).append(box)
            except NoBox as why:
                computed.setdefault(name, f"zeros: {why}")
        written = {copy.parameter for copy in copies} | zeros.keys()
        parameters = tuple(
            TensorSpec(name, safetensors_name(tensor.dtype), tuple(tensor.shape))
            for name, tensor in ((known.partition(":")[2], tensor) for known, tensor in self._targets.items())
            if name in written and name not in computed
        )
        whole = {spec.name for spec in parameters}
        recording = Recording(
            sources,
            parameters,
            tuple(dict.fromkeys(copy for copy in copies if copy.parameter in whole)),
            {name: tuple(dict.fromkeys(boxes)) for name, boxes in zeros.items() if name in whole},
        )
        return Loaded(recording, computed)

    def _know(self, name: str, tensor: torch.Tensor) -> None:
        self._known.setdefault(tensor.untyped_storage()._cdata, (name, tensor))

    def _name(self, tensor: torch.Tensor) -> str | None:
        return self._known.get(tensor.untyped_storage()._cdata, (None,))[0]

    def _shape(self, piece: Slice) -> tuple[int, ...]:
        return tuple(self._targets[piece.tensor].shape)

    def _slice(self, tensor: torch.Tensor) -> Slice:
        return Slice(self._name(tensor) or "", tensor.storage_offset(), tuple(tensor.shape), tensor.stride())

    def _compute(self, tensor: torch.Tensor, why: str) -> None:
        if not self._name(tensor):
            self._know(f"computed:{len(self._known)}", tensor)
        self._computed.setdefault(self._name(tensor) or "", why)

    def _copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        """Of a copy onto a tensor that is not known yet, the tensor is scratch, and known by what fills it."""
        if not self._name(source):
            self._compute(to, "values of its own")
            return
        piece = self._slice(source.expand(to.shape))
        if piece.tensor in self._computed:
            self._compute(to, self._computed[piece.tensor])
        elif self._name(to) is None:
            self._scratch_from(to, piece, torch.promote_types(source.dtype, to.dtype) == to.dtype)
        elif self._name(to) in self._scratch:
            self._compute(to, "scratch that is written twice")
        else:
            self._place(self._slice(to), piece)

    def _place(self, to: Slice, source: Slice) -> None:
        try:
            self._copies.append(self._in_source(to, source))
        except NoBox as why:
            self._computed.setdefault(to.tensor, f"scratch: {why}")

    def _scratch_from(self, to: torch.Tensor, source: Slice, keeps_values: bool) -> None:
        whole = to.is_contiguous() and to.untyped_storage().nbytes() == to.nbytes
        if not whole or not keeps_values:
            self._compute(to, "scratch of a part, or of a narrower dtype")
            return
        self._know(f"scratch:{len(self._known)}", to)
        name = self._name(to) or ""
        try:
            at, source = self._in_source(self._slice(to), source)
            self._scratch[name] = (source, at.size)
        except NoBox as why:
            self._computed[name] = f"scratch: {why}"

    def _in_source(self, to: Slice, source: Slice) -> tuple[Slice, Slice]:
        """The same copy, from what filled the scratch tensor if ``source`` is of one."""
        if source.tensor not in self._scratch:
            return to, source
        outer, size = self._scratch[source.tensor]
        return through(outer, size, to, source)
