"""transformers 5 holds some tensors in another form than its checkpoints: the experts of a mixture in one tensor, where
files have one for each. Its own rules say how a file's tensors come of them. They are run on meta tensors, which have
shapes and no memory, and where they only slice, what they do is a view: so it is done to shards too, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from layercast.errors import Unsupported
from layercast.trainer.sharding import Box
from layercast.trainer.wrappers import loaded_class


class Cut(NamedTuple):
    """A box of a checkpoint's tensor, as a view of a local tensor."""

    offsets: tuple[int, ...]  # in the checkpoint's tensor
    shape: tuple[int, ...]
    at: tuple[slice | int, ...]  # index of the local tensor
    order: tuple[int, ...]  # then its dimensions in this order
    new: tuple[int, ...]  # then dimensions of size 1 there

    def of(self, local: Tensor) -> Tensor:
        view = local[self.at].permute(self.order)
        for dimension in self.new:
            view = view.unsqueeze(dimension)
        return view


class Window(NamedTuple):
    """A tensor of the checkpoint that is a view of one held tensor: a box of it, its dimensions in another order,
    without those of size 1 and with others of size 1."""

    name: str
    shape: tuple[int, ...]  # in the checkpoint
    starts: tuple[int, ...]  # for each dimension of the held tensor
    sizes: tuple[int, ...]
    axes: tuple[int | None, ...]  # for each dimension of the checkpoint's, that of the held one; None: a new one

    def cut(self, box: Box) -> Cut | None:
        """What a box of the held tensor has of it; None: nothing."""
        at: list[slice | int] = []
        begins, sizes, kept = {}, {}, []
        for d, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True)):
            begin = max(start, box.offsets[d])
            end = min(start + size, box.offsets[d] + box.shape[d])
            if begin >= end:
                return None
            first = box.local[d].start + begin - box.offsets[d]
            if d in self.axes:
                begins[d], sizes[d] = begin - start, end - begin
                at.append(slice(first, first + end - begin))
                kept.append(d)
            else:
                at.append(first)
        return Cut(
            tuple(0 if axis is None else begins[axis] for axis in self.axes),
            tuple(1 if axis is None else sizes[axis] for axis in self.axes),
            tuple(at),
            tuple(kept.index(axis) for axis in self.axes if axis is not None),
            tuple(d for d, axis in enumerate(self.axes) if axis is None),
        )


@dataclass(frozen=True, slots=True)
class Computed:
    """Tensors of the checkpoint that transformers computes of held ones, in new memory."""

    sources: tuple[str, ...]
    targets: dict[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a model's checkpoint comes of what it holds."""

    names: dict[str, str] = field(default_factory=dict)  # held -> checkpoint's, of tensors that are the same
    windows: dict[str, tuple[Window, ...]] = field(default_factory=dict)  # by held name
    computed: tuple[Computed, ...] = ()


Form = tuple[str, tuple[int, ...], torch.dtype]  # name, shape, dtype of a held tensor

# What the rules make depends on forms alone, and finding it out takes most of the time of looking at a large mixture. A
# trainer publishes one model again and again.
_known: WeakKeyDictionary[Any, tuple[tuple[Form, ...], Conversion]] = WeakKeyDictionary()


def conversion_of(model: Any, held: Iterable[Form]) -> Conversion | None:
    """None: the checkpoint is as the model holds it."""
    pretrained = loaded_class("transformers.modeling_utils", "PreTrainedModel")
    if pretrained is None or not isinstance(model, pretrained):
        return None
    forms = tuple(held)
    known = _known.get(model)
    if known is None or known[0] != forms:
        known = _known[model] = (forms, _conversion_of(model, forms))
    return known[1]


def _conversion_of(model: Any, forms: Iterable[Form]) -> Conversion:
    sources = {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape, dtype in forms}
    with torch.no_grad(), _Origins(sources) as origins:
        converted = _revert(model, dict(sources))
    names: dict[str, str] = {}
    windows: dict[str, list[Window]] = {}
    computed: dict[tuple[str, ...], dict[str, tuple[tuple[int, ...], torch.dtype]]] = {}
    for target, tensor in converted.items():
        origin = origins.of(tensor)
        window = _window(target, tensor, sources[origin[0]]) if len(origin) == 1 else None
        if len(origin) == 1 and tensor is sources[origin[0]]:
            names[origin[0]] = target
        elif window is not None:
            windows.setdefault(origin[0], []).append(window)
        else:
            computed.setdefault(origin, {})[target] = (tuple(tensor.shape), tensor.dtype)
    return Conversion(
        names,
        {name: tuple(views) for name, views in windows.items()},
        tuple(Computed(origin, targets) for origin, targets in computed.items()),
    )


def compute(model: Any, computed: Computed, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The computed tensors, of their sources."""
    with torch.no_grad():
        converted = _revert(model, dict(tensors))
    for name, (shape, _) in computed.targets.items():
        if name not in converted or tuple(converted[name].shape) != shape:
            raise Unsupported(f"tensor '{name}': transformers' rules do not make it of {list(computed.sources)} alone")
    return {name: converted[name] for name in computed.targets}


def _revert(model: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # transformers 4: models hold what their checkpoints do
        return tensors
    reverted: dict[str, Tensor] = revert_weight_conversion(_as_before_fully_shard(model), tensors)
    return reverted


def _as_before_fully_shard(module: Any) -> Any:
    """FSDP2 gives each module that it shards a class of its own, FSDPX, and transformers finds rules by a class's name.
    So it is shown modules that share all but the class."""
    fsdp = loaded_class("torch.distributed.fsdp", "FSDPModule")
    if fsdp is None or not any(isinstance(one, fsdp) for one in module.modules()):
        return module
    kind = type(module)
    if issubclass(kind, fsdp):
        kind = kind.__mro__[kind.__mro__.index(fsdp) + 1]
    shown = object.__new__(kind)
    children = {
        name: None if child is None else _as_before_fully_shard(child) for name, child in module._modules.items()
    }
    shown.__dict__.update(module.__dict__, _modules=children)
    return shown


class _Origins(TorchFunctionMode):
    """Follows which source each tensor comes of, while it is entered. contiguous() does nothing then, so that what
    transformers copies in order to save it stays a view."""

    def __init__(self, sources: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._of: dict[int, tuple[str, ...]] = {id(tensor): (name,) for name, tensor in sources.items()}
        self._kept: list[Tensor] = []  # an id is one only while its object lives

    def of(self, tensor: Tensor) -> tuple[str, ...]:
        return self._of.get(id(tensor), ())

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.contiguous:
            return args[0]
        result = func(*args, **(kwargs or {}))
        made = [tensor for tensor in _tensors(result) if id(tensor) not in self._of]
        if made:
            origins = (name for tensor in _tensors((args, kwargs)) for name in self.of(tensor))
            origin = tuple(dict.fromkeys(origins))
            for tensor in made:
                self._of[id(tensor)] = origin
            self._kept += made
        return result


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _window(name: str, view: Tensor, source: Tensor) -> Window | None:
    """The box of a row-major source that a view shows; None: it shows no box, or is no view."""
    if view._base is not source or not view.numel():
        return None
    rest = int(view.storage_offset())
    starts = []
    for stride in source.stride():
        starts.append(rest // stride)
        rest %= stride
    by_stride = {stride: d for d, stride in enumerate(source.stride()) if source.shape[d] > 1}
    sizes = [1] * source.dim()
    axes: list[int | None] = []
    for size, stride in zip(view.shape, view.stride(), strict=True):
        if size == 1:
            axes.append(None)
            continue
        axis = by_stride.get(stride)
        if axis is None or axis in axes or starts[axis] + size > source.shape[axis]:
            return None
        axes.append(axis)
        sizes[axis] = size
    return Window(name, tuple(view.shape), tuple(starts), tuple(sizes), tuple(axes))
