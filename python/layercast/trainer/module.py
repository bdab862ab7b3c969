"""What a rank of a trainer publishes: the pieces of a module or of a state dict, or of a module that is gathered. The
publisher's Python class uses it, and integrations with trainers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from layercast.errors import InvalidArgument, Unsupported
from layercast.trainer import sharding
from layercast.trainer.adapters import Adapters, How
from layercast.trainer.conversions import Conversion, Window, conversion_of
from layercast.trainer.dense import check_dense, check_is_tensor
from layercast.trainer.dtypes import Cast, cast_of
from layercast.trainer.names import Held, check_names, held_by
from layercast.trainer.pieces import Pieces, Plan, View
from layercast.trainer.sharding import Box, Copies, Holders
from layercast.trainer.spread import Shared, choose, one_copy_each
from layercast.trainer.wrappers import Wrappers, unwrapped_name


def pieces_of_module(
    module: nn.Module,
    *,
    dtype: torch.dtype | None = None,
    adapters: How = "merge",
    ranks: Sequence[int] | None = None,
) -> Pieces:
    """What this rank publishes of a module, under the names of the checkpoint that save_pretrained would write. Each
    element is published by exactly one of `ranks`, and nothing is communicated.

    `ranks` are those that hold this module, all with the same names, shapes and placements, and that publish it
    together (None: all of torch.distributed). Pass a stage's ranks in a pipeline, and [0] if rank 0 publishes alone.
    `dtype`: see dtypes.cast_of. `adapters`: PEFT's, merged into new memory ("merge") or left out ("base").

    Raises InvalidArgument, Unsupported or FailedPrecondition, naming the tensor, before anything is published: see
    dense.dense for single tensors, names.held_by for modules, and sharding.boxes for DTensors.
    """
    return of_this_rank([looked_at(module, dtype, adapters)], ranks)[0]


def gathered(
    module: nn.Module, *, dtype: torch.dtype | None = None, adapters: How = "merge", keep: bool | None = None
) -> Pieces:
    """All of a module, whole: each DTensor is gathered when its turn comes, which is a collective. So all ranks that
    hold the module iterate to the end, at the same time. Those with `keep` get the pieces (None: rank 0 does)."""
    looked = looked_at(module, dtype, adapters)
    plan = _plan(looked, {})
    if keep is None:
        keep = _ranks(None)[1] == 0
    return Pieces(plan, model=looked.model, read=_whole, gathers=True, keep=keep, part=(0, 1) if keep else None)


def pieces_of_state_dict(
    tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]],
    *,
    dtype: torch.dtype | None = None,
    ranks: Sequence[int] | None = None,
) -> Pieces:
    """What this rank publishes of (name, tensor) pairs, DTensors among them. Names are taken as a checkpoint's, but for
    segments that only wrappers have; tied tensors are published under each of their names."""
    return of_this_rank([looked_at_tensors(tensors, dtype)], ranks)[0]


class Looked(NamedTuple):
    """A module or a state dict that was looked at: what it holds, on all ranks, and what becomes of it."""

    held: list[Held]
    model: Any  # transformers'; None: a state dict
    cast: Cast
    conversion: Conversion


def looked_at_tensors(
    tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]], dtype: torch.dtype | None
) -> Looked:
    pairs = tensors.items() if isinstance(tensors, Mapping) else tensors
    held = []
    for name, tensor in pairs:
        check_is_tensor(name, tensor)
        held.append(Held(unwrapped_name(name), tensor))
    check_names([one.name for one in held])
    _check(held)
    return Looked(held, None, Cast(dtype), Conversion())


def looked_at(module: nn.Module, dtype: torch.dtype | None, adapters: How) -> Looked:
    if not isinstance(module, nn.Module):
        raise InvalidArgument(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    held = held_by(module, Adapters(adapters))
    model: Any = Wrappers().unwrapped(module)
    ignored = getattr(model, "_keys_to_ignore_on_save", None) or ()
    if ignored:
        held = [one for one in held if one.name not in ignored]
    _check(held)
    conversion = conversion_of(model, ((one.name, tuple(one.tensor.shape), one.tensor.dtype) for one in held))
    return Looked(held, model, cast_of(model, (one.tensor for one in held), dtype), conversion or Conversion())


def _check(held: Iterable[Held]) -> None:
    """All that this rank holds, whoever publishes it: so all ranks refuse the same."""
    dtensor = sharding.dtensor_class()
    for one in held:
        tensor = one.tensor
        if dtensor is not None and isinstance(tensor, dtensor):
            local = sharding.local_tensor(tensor)
            if local.numel() or tensor.numel() == 0:
                check_dense(one.name, local)
        else:
            check_dense(one.name, tensor)


def of_this_rank(looked: Sequence[Looked], ranks: Sequence[int] | None = None) -> list[Pieces]:
    """What this rank publishes of several things that are one version: their pieces have the same `part`."""
    together, rank = _ranks(ranks)
    dtensor = sharding.dtensor_class()
    distributed = [
        {one.name for one in of.held if isinstance(one.tensor, dtensor)} if dtensor is not None else set()
        for of in looked
    ]
    for of in looked:
        _check_merges(of.held)
    part: tuple[int, int] | None = (0, 1)
    if any(distributed) or len(together) > 1:
        looked, part = _owned(looked, together, rank)
    found = []
    for of, names in zip(looked, distributed, strict=True):
        boxes = {one.name: sharding.boxes(one.name, one.tensor) for one in of.held if one.name in names}
        own = of._replace(held=[one for one in of.held if boxes.get(one.name) != ()])
        found.append(Pieces(_plan(own, boxes), model=of.model, read=_local if names else _as_held, part=part))
    return found


def _owned(
    looked: Sequence[Looked], ranks: tuple[int, ...], rank: int
) -> tuple[list[Looked], tuple[int, int] | None]:
    """Those of which this rank publishes something, unless it has an empty part; and its number among the ranks that
    publish."""
    holders = Holders(ranks)
    units: list[tuple[int, list[Held]]] = []  # with what they are of
    for index, of in enumerate(looked):
        together = {source for computed in of.conversion.computed for source in computed.sources}
        units += [(index, [one]) for one in of.held if one.name not in together]
        if together:  # one rank computes all that is computed
            units.append((index, [one for one in of.held if one.name in together]))
    shared, mine = [], []
    for index, unit in units:
        copies = _copies(unit, holders, ranks, ranks.index(rank))
        shared.append(Shared(looked[index].cast.of(unit[0].name, unit[0].tensor.dtype).itemsize, copies.copies))
        mine.append(copies.mine)
    chosen, load = choose(shared)
    own: list[set[str]] = [set() for _ in looked]
    for (index, unit), copy, is_mine in zip(units, chosen, mine, strict=True):
        if copy == is_mine:
            own[index].update(one.name for one in unit)
    publishing = sorted(load)
    part = (publishing.index(rank), len(publishing)) if rank in load else None
    return [
        of._replace(held=[one for one in of.held if one.name in names])
        for of, names in zip(looked, own, strict=True)
    ], part


def _copies(unit: list[Held], holders: Holders, ranks: tuple[int, ...], mine: int) -> Copies:
    if len(unit) == 1 and sharding.is_dtensor(unit[0].tensor):
        return holders.copies(unit[0].name, unit[0].tensor)
    for one in unit:
        if sharding.is_dtensor(one.tensor):
            raise Unsupported(
                f"tensor '{one.name}': a checkpoint holds it put together with others, which takes whole tensors, but "
                "it is sharded: gather it"
            )
    return one_copy_each(ranks, mine, sum(one.tensor.numel() for one in unit))


def _plan(looked: Looked, boxes: Mapping[str, Sequence[Box]]) -> Plan:
    """`boxes`: where what this rank reads of a tensor lies in it; one that is missing is read whole."""
    held, _, cast, conversion = looked
    inputs = {source for computed in conversion.computed for source in computed.sources}
    dtypes = {}
    views: dict[str, tuple[View, ...]] = {}
    for name, tensor, *_ in held if cast or conversion.windows or boxes else ():
        dtype = cast.of(name, tensor.dtype)
        if dtype != tensor.dtype:
            dtypes[name] = dtype
        windows = conversion.windows.get(name)
        if windows or name in boxes:
            shape = tuple(tensor.shape)
            windows = windows or (_all_of(conversion.names.get(name, name), shape),)
            views[name] = _views(windows, boxes.get(name) or (_whole_box(shape),))
    return Plan(
        held=[one for one in held if one.name not in inputs or one.name in views] if inputs else held,
        names=conversion.names,
        views=views,
        dtypes=dtypes,
        computed=conversion.computed if any(one.name in inputs for one in held) else (),
        inputs={one.name: one for one in held if one.name in inputs},
    )


def _views(windows: Iterable[Window], boxes: Iterable[Box]) -> tuple[View, ...]:
    views = []
    for window in windows:
        for box in boxes:
            cut = window.cut(box)
            if cut is not None:
                views.append(View(window.name, None if cut.shape == window.shape else window.shape, cut))
    return tuple(views)


def _all_of(name: str, shape: tuple[int, ...]) -> Window:
    return Window(name, shape, (0,) * len(shape), shape, tuple(range(len(shape))))


def _whole_box(shape: tuple[int, ...]) -> Box:
    return Box((0,) * len(shape), shape, tuple(slice(0, size) for size in shape))


def _check_merges(held: Iterable[Held]) -> None:
    for one in held:
        if one.layer is not None and any(sharding.is_dtensor(tensor) for tensor in one.layer.tensors()):
            raise Unsupported(
                f"tensor '{one.name}': an adapter of sharded tensors is merged by a collective: gather it, or "
                "publish with adapters='base'"
            )


def _ranks(ranks: Sequence[int] | None) -> tuple[tuple[int, ...], int]:
    """The ranks that publish together, in order, and this one."""
    distributed = torch.distributed
    started = distributed.is_available() and distributed.is_initialized()
    rank = distributed.get_rank() if started else 0
    size = distributed.get_world_size() if started else 1
    together = tuple(range(size)) if ranks is None else tuple(sorted(set(ranks)))
    if rank not in together or together[-1] >= size:
        raise InvalidArgument(
            f"ranks: expected ranks below {size}, this one ({rank}) among them, got {list(ranks or ())}"
        )
    return together, rank


def _as_held(tensor: Tensor) -> Tensor:
    return tensor


def _local(tensor: Tensor) -> Tensor:
    return sharding.local_tensor(tensor) if sharding.is_dtensor(tensor) else tensor


def _whole(tensor: Tensor) -> Tensor:
    return sharding.full(tensor) if sharding.is_dtensor(tensor) else tensor
