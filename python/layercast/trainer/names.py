"""What a module holds, under the names of its checkpoint: parameters and persistent buffers, tied ones once. Wrappers
leave no trace, and of PEFT's layers there is what they make of the layer below."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

from torch import Tensor, nn

from layercast.errors import FailedPrecondition, InvalidArgument, Unsupported
from layercast.trainer.adapters import Adapters, AdaptedLayer
from layercast.trainer.wrappers import Wrappers, is_a, loaded_class


class Held(NamedTuple):
    """A tensor that a module holds, or that an adapter makes of it."""

    name: str
    tensor: Tensor  # the trainer's own; of an adapted layer, the one below
    layer: AdaptedLayer | None = None  # makes the published tensor
    key: str = ""  # its name in the layer


def held_by(module: nn.Module, adapters: Adapters) -> list[Held]:
    """In the module's order. Of a tied tensor, the name that transformers would save; else the first. Parameters of
    FSDP2 are sharded again if a forward pass left them gathered, as state_dict() does. Raises FailedPrecondition on a
    module of FSDP1 outside summon_full_params, and InvalidArgument on a name that two tensors have."""
    walk = _Walk(adapters)
    walk.visit(module, "")
    return _without_repetition(walk.held, walk.tied)


class _Walk:
    def __init__(self, adapters: Adapters) -> None:
        self.held: list[Held] = []
        self.tied: list[str] = []  # patterns of names that a checkpoint leaves out if they repeat another
        self._adapters = adapters
        self._ordinary: set[type[nn.Module]] = set()  # classes of which nothing special is known
        self._wrappers = Wrappers()
        self._transformers = loaded_class("transformers.modeling_utils", "PreTrainedModel")
        self._fsdp = loaded_class("torch.distributed.fsdp", "FSDPModule")

    def visit(self, module: nn.Module, prefix: str) -> None:
        if type(module) in self._ordinary:  # most are, and there may be tens of thousands
            self._own(module, prefix)
            return
        while (child := self._wrappers.child(module)) is not None:
            _check_gathered(module, prefix)
            self._adapters.check_tuner(module)
            module = child
        sharded: Any = module if self._fsdp is not None and isinstance(module, self._fsdp) else None
        if sharded is not None:
            sharded.reshard()
        known = self._transformers is not None and isinstance(module, self._transformers)
        if known:
            self.tied += [re.escape(prefix) + key for key in getattr(module, "_tied_weights_keys", None) or {}]
        replaced = self._adapters.replaced(module, prefix)
        if replaced is not None:
            self._replaced(replaced, prefix)
            return
        if sharded is None and not known:
            self._ordinary.add(type(module))
        self._own(module, prefix)

    def _replaced(self, replaced: nn.Module | AdaptedLayer, prefix: str) -> None:
        if isinstance(replaced, AdaptedLayer):
            below = _Walk(self._adapters)
            below.visit(replaced.below, "")
            self.held += [Held(prefix + held.name, held.tensor, replaced, held.name) for held in below.held]
        else:
            self.visit(replaced, prefix)

    def _own(self, module: nn.Module, prefix: str) -> None:
        for name, parameter in module._parameters.items():
            if parameter is not None:
                self.held.append(Held(prefix + name, parameter))
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                self.held.append(Held(prefix + name, buffer))
        for name, child in module._modules.items():
            if child is not None:
                self.visit(child, f"{prefix}{name}.")


def _check_gathered(module: nn.Module, prefix: str) -> None:
    """FSDP1 keeps flat slices under the names of whole tensors: nothing about them tells."""
    if is_a(module, "torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"):
        state: Any = getattr(module, "training_state", None)
        if getattr(state, "name", None) != "SUMMON_FULL_PARAMS":
            raise FailedPrecondition(
                f"module '{prefix}' is wrapped by FullyShardedDataParallel (FSDP1): expected it to be gathered by "
                "FullyShardedDataParallel.summon_full_params, or sharded by fully_shard (FSDP2)"
            )


def _without_repetition(held: list[Held], tied: list[str]) -> list[Held]:
    if len({id(one.tensor) for one in held}) < len(held):
        by_tensor: dict[int, list[Held]] = {}
        for one in held:
            by_tensor.setdefault(id(one.tensor), []).append(one)
        pattern = re.compile("|".join(f"(?:{key})" for key in tied)) if tied else None
        held = [_saved(same, pattern) if len(same) > 1 else same[0] for same in by_tensor.values()]
    check_names([one.name for one in held])
    return held


def _saved(same: list[Held], tied: re.Pattern[str] | None) -> Held:
    """Of several names of one tensor the one that is saved. If an adapter changes the tensor, all names mean the
    changed one, as after PEFT's merge, which writes into the memory that they share."""
    adapted = [one for one in same if one.layer is not None]
    if len({id(one.layer.layer) for one in adapted if one.layer is not None}) > 1:
        raise Unsupported(
            f"tensors {[one.name for one in adapted]} are one, tied, and have an adapter each: expected at most one"
        )
    names = list(dict.fromkeys(one.name for one in same))
    kept = [name for name in names if tied is None or not tied.search(name)]
    name = kept[0] if kept else max(names)
    return adapted[0]._replace(name=name) if adapted else same[0]._replace(name=name)


def check_names(names: list[str]) -> None:
    """Raises InvalidArgument, naming it, if a name comes twice."""
    if len(set(names)) < len(names):
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise InvalidArgument(f"tensor '{twice}': expected one tensor of this name, got two")
