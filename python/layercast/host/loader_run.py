"""Runs an engine's own loader on the sources of what it computes, in fresh memory: nothing that is served changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from layercast.errors import Internal, Unsupported
from layercast.host import operators
from layercast.host.known_weights import difference, known_weights
from layercast.host.loaded import Loaded
from layercast.host.module_state import like, put, put_back
from layercast.recording import Recording

Tensors = dict[str, torch.Tensor]
Load = Callable[[Iterator[tuple[str, torch.Tensor]]], Any]


def computed_values(
    load: Load, model: torch.nn.Module, loaded: Loaded, sources: Tensors, live: Iterable[torch.Tensor], fill: int = 0
) -> Tensors:
    """What the loader makes of these sources: the values of all that it computes, by name.

    ``model`` shows load-time tensors, and is as before afterwards. The targets that the sources go into get memory of
    their own meanwhile, which holds ``fill`` at first. ``live``: the tensors that are served. Raises what the loader
    raises, and Internal where it would write one of those.
    """
    live = list(live)
    device = live[0].device
    with torch.no_grad(), put_back(model.modules()):
        values = {name: _in_memory(model, name, device, fill) for name in _touched(loaded)}
        with _Untouched(live):
            load(iter(sources.items()))
        return {name: values[name].detach() for name in loaded.computed}


def prove_loader(run: Callable[[Tensors, int], Tensors], loaded: Loaded, whose: str) -> None:
    """Raises Unsupported, naming a target, unless the loader makes the same of known sources, whatever its targets held
    before and in whichever order the sources come. ``run``: computed_values of (sources, fill)."""
    if not loaded.computed:
        return
    known = known_weights(Recording(loaded.fed(), (), (), {}))
    backwards = dict(reversed(known.items()))
    name, computed = next(iter(loaded.computed.items()))
    try:
        found = difference(run(_copies(known), 0), run(_copies(backwards), 1))
    except Exception as why:  # the engine's own code: whatever it is, these targets cannot be left to it
        raise Unsupported(f"'{name}' ({computed.why}): {whose} loader, given its sources alone: {why!r}") from why
    if found:
        raise Unsupported(f"{found}: {whose} loader makes it of more than its sources, or depends on their order")


def _touched(loaded: Loaded) -> list[str]:
    fed = {spec.name for spec in loaded.fed()}
    copied = (copy.parameter for copy in loaded.recording.copies if copy.source in fed)
    return list(dict.fromkeys([*loaded.computed, *copied]))


def _in_memory(model: torch.nn.Module, name: str, device: torch.device, fill: int) -> torch.Tensor:
    path, _, own = name.rpartition(".")
    module = model.get_submodule(path)
    tensor: torch.Tensor = getattr(module, own)
    data = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device).fill_(fill)
    fresh = like(tensor, data)
    put(module, own, fresh)
    return fresh


class _Untouched(TorchDispatchMode):
    """Refuses a write to any of these tensors before it happens."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._storages = {tensor.untyped_storage()._cdata for tensor in tensors}

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in operators.written(op, args, kwargs):
            if tensor.untyped_storage()._cdata in self._storages:
                raise Internal(f"the loader writes a tensor {list(tensor.shape)} that is served, by {op}")
        return op(*args, **kwargs)


def _copies(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}
