"""Finds the memory in which a live vLLM model keeps each parameter, and proves that Layercast fills it as vLLM would.

Each layer goes one of two ways. *adopted*: its kernel tensors are handed to a :class:`layercast.Receiver`, which writes
them in place. *reloaded*: its load-time tensors are staged in memory of their own, and vLLM's own code makes kernel
tensors of them before the commit (Marlin, AMX, packed experts). A layer is adopted if known weights, loaded by vLLM
and by Layercast, gave the same bytes, padding included. One check is made for each class, method and shape. A layer of
which vLLM's loader computes a tensor (Mamba's A) is reloaded: in that tensor's place, its sources are staged whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from layercast.errors import Error, InvalidArgument, Unsupported
from layercast.host.known_weights import LARGEST, copy_of, difference, known_weights, replayed
from layercast.host.layers import buffers_in, by_layer, kind_of, one_recipe, quantized, refuse, why_left
from layercast.host.loaded import Loaded
from layercast.host.views import NotAdoptable
from layercast.host.whole_sources import beside
from layercast.receiver import Receiver
from layercast.recording import Recording
from layercast.vllm.load_time import own_tensors, processed

# By the class of a layer's quantization method: the recipe that makes what it makes of full precision. Methods that are
# not listed keep the form in which the checkpoint is, or are reloaded.
RECIPES = {
    "Fp8PerTensorOnlineLinearMethod": "fp8_per_tensor",
    "Fp8PtpcOnlineLinearMethod": "fp8_per_channel",
    "Fp8PerBlockOnlineLinearMethod": "fp8_per_block",
    "Fp8PerTensorOnlineMoEMethod": "fp8_per_tensor",
    "Fp8PtpcOnlineMoEMethod": "fp8_per_channel",
    "Fp8PerBlockOnlineMoEMethod": "fp8_per_block",
    "Mxfp8OnlineLinearMethod": "mxfp8",
    "Mxfp8OnlineMoEMethod": "mxfp8",
}


@dataclass(frozen=True)
class Layer:
    """A module that a load fills, and the way in which it is filled. ``why``: why it is not adopted; "" if it is.

    ``parameters`` are filled by copies, those that are ``computed`` by vLLM's own loader.
    """

    path: str
    module: torch.nn.Module
    parameters: tuple[str, ...]
    computed: tuple[str, ...] = ()
    recipe: str = "none"
    why: str = ""

    @property
    def adopted(self) -> bool:
        return not self.why


@dataclass(frozen=True)
class Adoption:
    """What the receivers of one worker need.

    Args:
        recording: of adopted layers, with their buffers by kernel name and their recipe.
        beside: of what is staged for all others.
        loaded: all that was recorded.
    """

    recording: Recording
    recipe: str
    buffers: dict[str, torch.Tensor]
    beside: Recording
    loaded: Loaded
    layers: tuple[Layer, ...]
    checks: int = 0  # how many self checks were made

    def reloaded(self) -> list[Layer]:
        return [layer for layer in self.layers if not layer.adopted]


def adopt(model: torch.nn.Module, loaded: Loaded) -> Adoption:
    """Adopts what can be adopted of a live model, whose load was recorded.

    Runs vLLM's processing of known weights, on tensors of its own; on all ranks at once, since that may communicate.
    Raises Unsupported, naming it, for a parameter that cannot be filled in either way.
    """
    refuse(loaded.refused)
    _refuse_unwritten(model, loaded)
    checks = _Checks()
    layers = [checks.decide(layer, loaded) for layer in _layers(model, loaded)]
    adopted = [layer for layer in layers if layer.adopted]
    recipe = one_recipe(layer.recipe for layer in adopted)
    names = (name for layer in adopted if layer.recipe != "none" for name in layer.parameters)
    recording = replace(loaded.recording, quantized=quantized(names, loaded.recording))
    buffers = {}
    for layer in adopted:
        part = recording.of_parameters(set(layer.parameters))
        buffers.update(buffers_in(own_tensors(layer.module), part, layer.recipe))
    live = recording.taking({name for layer in adopted for name in layer.parameters})
    others = beside(loaded, (name for layer in layers if not layer.adopted for name in layer.parameters))
    return Adoption(live, recipe, buffers, others, loaded, tuple(layers), checks.made)


def _refuse_unwritten(model: torch.nn.Module, loaded: Loaded) -> None:
    """A parameter that no tensor fills would go on serving the version before. Those of attention are scales that
    checkpoints may leave out; a tied one is filled under its other name."""
    from vllm.model_executor.layers.attention import is_deferred_attention_layer

    def live(name: str) -> tuple[torch.nn.Module, Any]:
        path, _, own = name.rpartition(".")
        module = model.get_submodule(path)
        return module, getattr(module, own, None)

    names = [*(spec.name for spec in loaded.recording.parameters), *loaded.computed]
    filled = {tensor.data_ptr() for name in names if (tensor := live(name)[1]) is not None}
    missing = []
    for name in loaded.unwritten:
        module, tensor = live(name)
        tied = tensor is not None and tensor.numel() and tensor.data_ptr() in filled
        if not tied and not is_deferred_attention_layer(module):
            missing.append(name)
    if missing:
        more = f", and for {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InvalidArgument(f"the version has no tensor for '{missing[0]}'{more}: expected a whole model")


def _layers(model: torch.nn.Module, loaded: Loaded) -> Iterator[Layer]:
    seen: dict[int, str] = {}
    copied = by_layer(spec.name for spec in loaded.recording.parameters)
    computed = by_layer(loaded.computed)
    for path in dict.fromkeys([*copied, *computed]):
        module = model.get_submodule(path)
        names = copied.get(path, ())
        for name in (*names, *computed.get(path, ())):
            tensor = getattr(module, name.rpartition(".")[2], None)
            address = tensor.data_ptr() if isinstance(tensor, torch.Tensor) and tensor.numel() else 0
            if address and address in seen:
                raise Unsupported(
                    f"'{name}' and '{seen[address]}' are one tensor in this engine, which tied them when it loaded a "
                    "checkpoint in which they were equal: expected a config with tie_word_embeddings, or two tensors"
                )
            seen[address] = name
        method = type(getattr(module, "quant_method", None)).__name__
        yield Layer(path, module, names, computed.get(path, ()), RECIPES.get(method, "none"))


@dataclass
class _Checks:
    """The self checks of one model: one for each class, method and shapes."""

    results: dict[Any, str] = field(default_factory=dict)
    made: int = 0

    def decide(self, layer: Layer, loaded: Loaded) -> Layer:
        if layer.computed:
            return replace(layer, why=why_left(layer.computed, loaded.computed))
        part = loaded.recording.of_parameters(set(layer.parameters))
        key = kind_of(layer.module, own_tensors(layer.module), part, layer.recipe)
        if key not in self.results:
            self.made += 1
            names = layer.parameters if layer.recipe != "none" else ()
            part = replace(part, quantized=quantized(names, part))
            try:
                self.results[key] = check(layer, part)
            except (NotAdoptable, Error) as why:
                self.results[key] = str(why)
        return replace(layer, why=self.results[key])


def check(layer: Layer, part: Recording) -> str:
    """Loads known weights twice, by vLLM's code and by Layercast's; "" if every byte is the same, else the first
    difference."""
    return next(filter(None, (_difference(layer, part, largest) for largest in LARGEST)), "")


def _difference(layer: Layer, part: Recording, largest: float) -> str:
    sources = known_weights(part, largest)
    memory = {name: copy_of(tensor) for name, tensor in own_tensors(layer.module).items()}
    kept = {name: tensor.data for name, tensor in own_tensors(layer.module).items()}
    theirs = processed(layer.module, replayed(part, sources))
    with Receiver(part, buffers=buffers_in(memory, part, layer.recipe), quantization=layer.recipe) as receiver:
        receiver.reload_weights(sources)
    for name, tensor in own_tensors(layer.module).items():
        assert tensor.data_ptr() == kept[name].data_ptr()
    return difference(memory, theirs)
