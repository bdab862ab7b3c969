"""Finds the memory in which a live SGLang model keeps each parameter, and proves that Layercast fills it as SGLang
would.

A layer is *adopted* if known weights, loaded by SGLang's code on the twin and by Layercast into copies of the live
tensors, give the same bytes, strides and padding included. One check is made for each class, method and shape. One that
differs (FP8 that SGLang makes of bf16), or of which SGLang's loader computes a tensor (Gemma's norms), is *reloaded*:
what SGLang's own code needs for it is staged in memory of its own, and goes through that code before the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from layercast.errors import Error, Unsupported
from layercast.host.known_weights import LARGEST, copy_of, difference, known_weights, replayed
from layercast.host.layers import FULL_PRECISION, buffers_in, by_layer, kind_of, one_recipe, quantized, refuse, why_left
from layercast.host.loaded import Loaded
from layercast.host.made import refuse_stale, require_fit
from layercast.host.views import NotAdoptable
from layercast.host.whole_sources import beside
from layercast.receiver import Receiver
from layercast.recording import Recording
from layercast.sglang.device import wait_for
from layercast.sglang.twin import own_tensors, processed, tensors_among


@dataclass(frozen=True)
class Layer:
    """A live module that a load fills, the same module of the twin, and the recipe that SGLang applied. ``why``: why it
    is not adopted; "" if it is. ``parameters`` are filled by copies, those that are ``computed`` by SGLang's loader."""

    path: str
    module: torch.nn.Module
    twin: torch.nn.Module
    parameters: tuple[str, ...]
    computed: tuple[str, ...]
    recipe: str
    why: str = ""

    @property
    def adopted(self) -> bool:
        return not self.why

    def method(self) -> str:
        return type(getattr(self.module, "quant_method", None)).__name__


@dataclass(frozen=True)
class Adoption:
    """What the receivers of one rank need, and where the engine's tensors were when it was made.

    Args:
        recording: of adopted layers, with their buffers by kernel name and their recipe.
        beside: of what is staged for all others.
        loaded: all that was recorded, on the twin.
    """

    recording: Recording
    recipe: str
    buffers: dict[str, torch.Tensor]
    beside: Recording
    loaded: Loaded
    twin: torch.nn.Module
    layers: tuple[Layer, ...]
    checks: int  # how many self checks were made
    addresses: dict[str, int] = field(default_factory=dict)

    def reloaded(self) -> list[Layer]:
        return [layer for layer in self.layers if not layer.adopted]

    def moved(self) -> str:
        """A tensor that is not where it was, "" if there is none: SGLang's own updates give layers new ones."""
        now = _addresses(self.layers)
        return next((name for name, address in self.addresses.items() if now.get(name) != address), "")


def adopt(model: torch.nn.Module, twin: torch.nn.Module, loaded: Loaded) -> Adoption:
    """Adopts a live model, whose load was recorded on its twin. Raises Unsupported, naming it, for what can be filled
    in neither way."""
    refuse(loaded.refused)
    _refuse_what_keeps_its_values(twin, loaded)
    checked: dict[Any, str] = {}
    layers = tuple(_decided(layer, loaded, checked) for layer in _layers(model, twin, loaded))
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
    return Adoption(live, recipe, buffers, others, loaded, twin, layers, len(checked), _addresses(layers))


def _decided(layer: Layer, loaded: Loaded, checked: dict[Any, str]) -> Layer:
    """In which way it is filled. ``checked``: by kind of layer, what its check said."""
    why = why_left(layer.computed, loaded.computed)
    if not why:
        part = loaded.recording.of_parameters(set(layer.parameters))
        key = kind_of(layer.module, own_tensors(layer.module), part, layer.recipe)
        if key not in checked:
            names = layer.parameters if layer.recipe != "none" else ()
            checked[key] = check(layer, replace(part, quantized=quantized(names, part)))
        why = checked[key]
    if why:
        _refuse_unfilled(layer, loaded)
    return replace(layer, why=why)


def _refuse_unfilled(layer: Layer, loaded: Loaded) -> None:
    """SGLang's code would make kernel tensors of what the live layer has become, where nothing fills a parameter."""
    for name in loaded.unwritten:
        if name.rpartition(".")[0] == layer.path:
            raise Unsupported(f"layer {layer.path}, which SGLang's own code has to fill: no tensor for '{name}'")


def check(layer: Layer, part: Recording) -> str:
    """Loads known weights twice, by SGLang's code and by Layercast's; "" if every byte is the same, else why not.
    Raises Unsupported where SGLang's code does not make such tensors as it serves."""
    return next(filter(None, (_difference(layer, part, largest) for largest in LARGEST)), "")


def _difference(layer: Layer, part: Recording, largest: float) -> str:
    live = own_tensors(layer.module)
    memory = {name: copy_of(tensor) for name, tensor in live.items()}
    wait_for(next(iter(live.values())).device)
    sources = known_weights(part, largest)
    try:
        attributes = processed(layer.twin, by_own_name(replayed(part, sources)), live)
    except Exception as error:  # SGLang's own processing: whatever it is, the layer cannot be left to it
        name = f"layer {layer.path} ({layer.method()})"
        raise Unsupported(f"{name}: SGLang's processing of known weights: {error!r}") from error
    try:
        with Receiver(part, buffers=buffers_in(memory, part, layer.recipe), quantization=layer.recipe) as receiver:
            receiver.reload_weights(sources)
        why = difference(memory, tensors_among(attributes))
    except (NotAdoptable, Error) as error:
        why = str(error)
    if why:
        refuse_what_copies_miss(layer, attributes)
    return why


def refuse_what_copies_miss(layer: Layer, processed: dict[str, Any]) -> None:
    """Raises Unsupported unless a copy of tensors makes of the live layer what SGLang's processing has made."""
    live = own_tensors(layer.module)
    require_fit(layer.path, tensors_among(processed), live)
    refuse_stale(layer.path, processed, {**vars(layer.module), **live})


def _refuse_what_keeps_its_values(twin: torch.nn.Module, loaded: Loaded) -> None:
    filled = {spec.name for spec in loaded.recording.parameters} | loaded.computed.keys()
    for name, _ in twin.named_parameters():
        if name.endswith("weight") and name not in filled:
            raise Unsupported(f"'{name}': expected tensors that fill it, got none: it would keep what it serves")


def _layers(model: torch.nn.Module, twin: torch.nn.Module, loaded: Loaded) -> Iterator[Layer]:
    copied = by_layer(spec.name for spec in loaded.recording.parameters)
    computed = by_layer(loaded.computed)
    for path in dict.fromkeys([*copied, *computed]):
        module = model.get_submodule(path)
        module = getattr(module, "base_layer", module)  # of a layer that SGLang wrapped for LoRA
        own = own_tensors(module)
        names, left = copied.get(path, ()), computed.get(path, ())
        for name in (*names, *left):
            if name.rpartition(".")[2] not in own:
                raise Unsupported(f"layer {path}: expected a tensor '{name.rpartition('.')[2]}', got none")
        recipe = _recipe(names, own, loaded.recording)
        yield Layer(path, module, twin.get_submodule(path), names, left, recipe)


def _recipe(names: tuple[str, ...], live: dict[str, torch.Tensor], recording: Recording) -> str:
    """The recipe that SGLang applied, by what it made: FP8 of full precision, with scales of one shape or another."""
    dtypes = {spec.name: spec.dtype for spec in recording.parameters}
    for name in names:
        own = name.rpartition(".")[2]
        if dtypes[name] not in FULL_PRECISION or live[own].dtype != torch.float8_e4m3fn:
            continue
        if f"{own}_scale_inv" in live:
            return "fp8_per_block"
        scale = live.get(f"{own}_scale")
        per_tensor = scale is not None and scale.numel() == live[own].shape[:-2].numel()
        return "fp8_per_tensor" if per_tensor else "fp8_per_channel"
    return "none"


def by_own_name(parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.rpartition(".")[2]: tensor for name, tensor in parameters.items()}


def _addresses(layers: tuple[Layer, ...]) -> dict[str, int]:
    return {
        f"{layer.path}.{name}": tensor.data_ptr()
        for layer in layers
        for name, tensor in own_tensors(layer.module).items()
    }
