"""Runs an engine's own ``load_weights`` once, on tensors without memory, and writes down every copy that it makes.

A view of a meta tensor shares its base's storage object. So (storage, offset, size, stride) says which piece of which
tensor a loader has in its hands, whatever views it took, and a dispatch mode that sees ``copy_`` sees all there is. Of
what other operators compute, it is noted which sources fed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from layercast.dtypes import torch_dtype
from layercast.errors import Unsupported
from layercast.host import operators
from layercast.host.casts import cast
from layercast.host.loaded import Loaded, Result
from layercast.host.memory import NOTHING, Computed, Content, Filled, Memory, sources_of
from layercast.host.operators import tensors_in
from layercast.host.slices import NoBox, Slice, contiguous
from layercast.tensor import TensorSpec


def record(
    load_weights: Callable[[Iterator[tuple[str, torch.Tensor]]], Any],
    targets: dict[str, torch.Tensor],
    sources: Iterable[TensorSpec],
) -> Loaded:
    """Records what ``load_weights`` does with these tensors.

    ``targets``: the parameters and buffers that it fills, by name, as it knows them before anything is quantized. They
    are not written, so that they may be on meta as well as live. Raises what the loader raises, for instance on a name
    that it does not know, and Unsupported if it looks at the values of weights.
    """
    sources = tuple(sources)
    given = {spec.name: torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device="meta") for spec in sources}
    with torch.no_grad(), _Recorder(targets, given) as recorder:
        load_weights(iter(given.items()))
    return Result(recorder, targets, sources).loaded()


_ATEN = torch.ops.aten
_EMPTY: tuple[Any, ...] = (_ATEN.empty.memory_format, _ATEN.empty_strided.default, _ATEN.empty_like.default)
_EMPTY += (_ATEN.new_empty.default, _ATEN.new_empty_strided.default)
_ZEROS = (_ATEN.zeros.default, _ATEN.zeros_like.default, _ATEN.new_zeros.default)
_LOOKS = (_ATEN._local_scalar_dense.default, _ATEN.equal.default, _ATEN.is_nonzero.default)
_OWN = Computed("values of the loader's own")
_UNWRITTEN = Computed("memory that nothing was written into")
_RANDOM = torch.Tag.nondeterministic_seeded


class _Recorder(TorchDispatchMode):
    """Follows every tensor that a source's values go to. One thread only."""

    def __init__(self, targets: dict[str, torch.Tensor], sources: dict[str, torch.Tensor]) -> None:
        super().__init__()
        # By storage; with a tensor of it, so that no other storage gets its address.
        self._memories: dict[int, tuple[Memory, torch.Tensor]] = {}
        for name, tensor in sources.items():
            self._know(tensor, name)
        for name, tensor in targets.items():
            if self.memory(tensor) is None:
                self._know(tensor, name, NOTHING)

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if op in _EMPTY or op in _ZEROS:
            return self._made(op, args, kwargs)
        tensors = list(tensors_in((args, kwargs)))
        if not any(map(self.memory, tensors)):
            return op(*args, **kwargs)
        if op is _ATEN.copy_.default:
            self.copy(args[0], args[1])
            return args[0]
        if op is _ATEN.fill_.Scalar or op is _ATEN.zero_.default:
            self.write(args[0], Filled(float(args[1]) if len(args) > 1 else 0.0))
            return args[0]
        if op in _LOOKS and any(map(self._unknown, tensors)):
            raise Unsupported(f"expected a loader that copies, got one that looks at the values of weights, by {op}")
        if torch.Tag.inplace_view not in op.tags and (into := operators.written(op, args, kwargs)):
            content = self._computed(op, args, kwargs)
            for tensor in into:
                self.write(tensor, content)
            return into[0] if len(into) == 1 else None
        return self._new(op, args, kwargs)

    def memory(self, tensor: torch.Tensor) -> Memory | None:
        return self._memories.get(tensor.untyped_storage()._cdata, (None,))[0]

    def read(self, tensor: torch.Tensor, to: Slice) -> list[tuple[Slice, Content]]:
        """What a tensor holds, as parts of ``to``."""
        memory = self.memory(tensor)
        if memory is None:
            return [(to, _OWN)]
        if self._dtype(tensor) != tensor.dtype:
            return [(to, Computed(f"{self._dtype(tensor)} read as {tensor.dtype}", memory.sources()))]
        try:
            return memory.read(_slice(tensor, memory), to)
        except NoBox as why:
            return [(to, Computed(str(why), memory.sources()))]

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        memory = self.memory(to) or self._know(to, "scratch", _OWN)
        if self._dtype(to) != to.dtype:
            return self.write(to, Computed("other bytes", self._fed([source])))
        for where, content in self.read(source.expand(to.shape), _slice(to, memory)):
            memory.write(where, cast(content, source.dtype, to.dtype))

    def write(self, to: torch.Tensor, content: Content) -> None:
        memory = self.memory(to) or self._know(to, "scratch", _OWN)
        if self._dtype(to) == to.dtype:
            return memory.write(_slice(to, memory), content)
        # The tensor counts other elements than the memory does: what is written is taken to be all of it.
        if to.numel() * to.element_size() != to.untyped_storage().nbytes():
            content = Computed("", sources_of([content, Computed("", memory.sources())]))
        why = f"{to.dtype} written as {self._dtype(to)}"
        memory.write(contiguous((memory.elements,)), Computed(why, sources_of([content])))

    def _computed(self, op: Any, args: Any, kwargs: Any) -> Computed:
        """What an operator makes of its arguments."""
        if _RANDOM in op.tags:
            return Computed(f"random, by {op}")
        changed = operators.changed(op, args, kwargs)
        before, new = self._fed(changed), self._fed(operators.read(op, args, kwargs))
        into_target = any(memory.is_target for tensor in changed if (memory := self.memory(tensor)))
        if into_target and before and new and not new <= before:
            return Computed(f"accumulated by {op}, in the order in which {_names(before | new)} come")
        return Computed(f"computed by {op}", None if before is None or new is None else before | new)

    def _fed(self, tensors: Iterable[torch.Tensor]) -> frozenset[str] | None:
        """The sources that fed what these hold; None if something else did too."""
        parts = (part for tensor in tensors for part in self.read(tensor, contiguous(tensor.shape)))
        return sources_of(content for _, content in parts)

    def _made(self, op: Any, args: Any, kwargs: Any) -> torch.Tensor:
        """An empty tensor, or one of zeros, which a loader will fill."""
        out: torch.Tensor = op(*args, **kwargs)
        self._know(out, "scratch", Filled(0.0) if op in _ZEROS else _UNWRITTEN)
        return out

    def _new(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator that writes nothing, and notes what its results hold, if they are no views."""
        meta = any(tensor.is_meta for tensor in tensors_in(args))
        if "device" in kwargs and meta:
            kwargs = {**kwargs, "device": "meta"}
        out = op(*(_on_meta(args) if meta else args), **kwargs)
        for tensor in tensors_in(out):
            if self.memory(tensor) is None:
                self._know(tensor, "scratch", self._computed(op, args, kwargs))
                if op in _FILLED:
                    _FILLED[op](self, tensor, *args)
        return out

    def _know(self, tensor: torch.Tensor, name: str, before: Content | None = None) -> Memory:
        storage = tensor.untyped_storage()
        memory = Memory(name, storage.nbytes() // tensor.element_size(), before)
        self._memories[storage._cdata] = memory, tensor
        return memory

    def _dtype(self, tensor: torch.Tensor) -> torch.dtype:
        return self._memories[tensor.untyped_storage()._cdata][1].dtype

    def _unknown(self, tensor: torch.Tensor) -> bool:
        """Whether it has no values now that it would have in a load of real weights."""
        memory = self.memory(tensor)
        return memory is not None and (tensor.is_meta or memory.written)


def _clone(recorder: _Recorder, out: torch.Tensor, source: torch.Tensor, *_: Any) -> None:
    recorder.copy(out, source)


def _cat(recorder: _Recorder, out: torch.Tensor, parts: list[torch.Tensor], dim: int = 0) -> None:
    parts = [part for part in parts if part.shape != (0,)]
    for to, part in zip(out.split([part.shape[dim] for part in parts], dim), parts):
        recorder.copy(to, part)


def _stack(recorder: _Recorder, out: torch.Tensor, parts: list[torch.Tensor], dim: int = 0) -> None:
    for to, part in zip(out.unbind(dim), parts):
        recorder.copy(to, part)


def _repeat(recorder: _Recorder, out: torch.Tensor, source: torch.Tensor, repeats: list[int]) -> None:
    shape = (1,) * (len(repeats) - source.dim()) + tuple(source.shape)
    apart = [extent for pair in zip(repeats, shape) for extent in pair]
    ones = [extent for count in shape for extent in (1, count)]
    recorder.copy(out.view(apart), source.as_strided(ones, _strides_between(source, len(repeats))))


def _strides_between(source: torch.Tensor, rank: int) -> list[int]:
    strides = (0,) * (rank - source.dim()) + tuple(source.stride())
    return [step for stride in strides for step in (0, stride)]


def _pad(recorder: _Recorder, out: torch.Tensor, source: torch.Tensor, padding: list[int], value: float = 0) -> None:
    if min(padding, default=0) < 0:
        return
    recorder.write(out, Filled(float(value)))
    inner = out
    for d, before in enumerate(padding[::2]):
        axis = source.dim() - 1 - d
        inner = inner.narrow(axis, before, source.shape[axis])
    recorder.copy(inner, source)


# Operators whose results hold what their arguments do, and how: (recorder, result, the operator's arguments).
_FILLED: dict[Any, Callable[..., None]] = {
    _ATEN._to_copy.default: _clone,
    _ATEN.clone.default: _clone,
    _ATEN.cat.default: _cat,
    _ATEN.stack.default: _stack,
    _ATEN.repeat.default: _repeat,
    _ATEN.constant_pad_nd.default: _pad,
}


def _slice(tensor: torch.Tensor, memory: Memory) -> Slice:
    return Slice(memory.name, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))


def _names(sources: frozenset[str]) -> str:
    return " and ".join(f"'{name}'" for name in sorted(sources))


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return type(value)(map(_on_meta, value)) if isinstance(value, (list, tuple)) else value
