"""What a rank of a trainer publishes: the pieces of a module or of a state dict, or of a module that is gathered. The
publisher's Python class uses it, and integrations with trainers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    held, model, cast, conversion = _looked_at(module, dtype, adapters)
    return _of_this_rank(held, model, cast, conversion or Conversion(), ranks)


def gathered(
    module: nn.Module, *, dtype: torch.dtype | None = None, adapters: How = "merge", keep: bool | None = None
) -> Pieces:
    """All of a module, whole: each DTensor is gathered when its turn comes, which is a collective. So all ranks that
    hold the module iterate to the end, at the same time. Those with `keep` get the pieces (None: rank 0 does)."""
    held, model, cast, conversion = _looked_at(module, dtype, adapters)
    plan = _plan(held, cast, conversion or Conversion(), {})
    if keep is None:
        keep = _ranks(None)[1] == 0
    return Pieces(plan, model=model, read=_whole, gathers=True, keep=keep, part=(0, 1) if keep else None)


def pieces_of_state_dict(
    tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]],
    *,
    dtype: torch.dtype | None = None,
    ranks: Sequence[int] | None = None,
) -> Pieces:
    """What this rank publishes of (name, tensor) pairs, DTensors among them. Names are taken as a checkpoint's, but for
    segments that only wrappers have; tied tensors are published under each of their names."""
    pairs = tensors.items() if isinstance(tensors, Mapping) else tensors
    held = []
    for name, tensor in pairs:
        check_is_tensor(name, tensor)
        held.append(Held(unwrapped_name(name), tensor))
    check_names([one.name for one in held])
    _check(held)
    return _of_this_rank(held, None, Cast(dtype), Conversion(), ranks)


def _looked_at(
    module: nn.Module, dtype: torch.dtype | None, adapters: How
) -> tuple[list[Held], nn.Module, Cast, Conversion | None]:
    if not isinstance(module, nn.Module):
        raise InvalidArgument(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    held = held_by(module, Adapters(adapters))
    model: Any = Wrappers().unwrapped(module)
    ignored = getattr(model, "_keys_to_ignore_on_save", None) or ()
    if ignored:
        held = [one for one in held if one.name not in ignored]
    _check(held)
    conversion = conversion_of(model, ((one.name, tuple(one.tensor.shape), one.tensor.dtype) for one in held))
    return held, model, cast_of(model, (one.tensor for one in held), dtype), conversion


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


def _of_this_rank(
    held: list[Held], model: Any, cast: Cast, conversion: Conversion, ranks: Sequence[int] | None
) -> Pieces:
    together, rank = _ranks(ranks)
    dtensor = sharding.dtensor_class()
    distributed = {one.name for one in held if isinstance(one.tensor, dtensor)} if dtensor is not None else set()
    _check_merges(held)
    part: tuple[int, int] | None = (0, 1)
    boxes: dict[str, tuple[Box, ...]] = {}
    if distributed or len(together) > 1:
        held, part = _owned(held, cast, conversion, together, rank)
        boxes = {one.name: sharding.boxes(one.name, one.tensor) for one in held if one.name in distributed}
        held = [one for one in held if boxes.get(one.name) != ()]
    plan = _plan(held, cast, conversion, boxes)
    return Pieces(plan, model=model, read=_local if distributed else _as_held, part=part)


def _owned(
    held: list[Held], cast: Cast, conversion: Conversion, ranks: tuple[int, ...], rank: int
) -> tuple[list[Held], tuple[int, int] | None]:
    """Those of which this rank publishes something, unless it has an empty part; and its number among the ranks that
    publish."""
    together = {source for computed in conversion.computed for source in computed.sources}
    holders = Holders(ranks)
    units: list[list[Held]] = [[one] for one in held if one.name not in together]
    if together:  # one rank computes all that is computed
        units.append([one for one in held if one.name in together])
    shared, mine = [], []
    for unit in units:
        copies = _copies(unit, holders, ranks, ranks.index(rank))
        shared.append(Shared(cast.of(unit[0].name, unit[0].tensor.dtype).itemsize, copies.copies))
        mine.append(copies.mine)
    chosen, load = choose(shared)
    own = {one.name for unit, copy, is_mine in zip(units, chosen, mine, strict=True) if copy == is_mine for one in unit}
    publishing = sorted(load)
    part = (publishing.index(rank), len(publishing)) if rank in load else None
    return [one for one in held if one.name in own], part


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


def _plan(
    held: list[Held], cast: Cast, conversion: Conversion, boxes: Mapping[str, Sequence[Box]]
) -> Plan:
    """`boxes`: where what this rank reads of a tensor lies in it; one that is missing is read whole."""
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
