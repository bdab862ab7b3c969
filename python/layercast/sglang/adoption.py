"""Finds the memory in which a live SGLang model keeps each parameter, and proves that Layercast fills it as SGLang
would.

A layer is adopted if known weights, loaded by SGLang's code on the twin and by Layercast into copies of the live
tensors, give the same bytes, strides and padding included. One that is not is refused by name. One check is made for
each class, method and shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from layercast.errors import Error, Unsupported
from layercast.host.known_weights import copy_of, difference, known_weights, replayed
from layercast.host.layers import FULL_PRECISION, buffers_in, by_layer, kind_of, one_recipe, quantized
from layercast.host.loaded import Loaded
from layercast.host.views import NotAdoptable
from layercast.receiver import Receiver
from layercast.recording import Recording
from layercast.sglang.device import wait_for
from layercast.sglang.twin import own_tensors, processed


@dataclass(frozen=True)
class Layer:
    """A live module that a load fills, the same module of the twin, and the recipe that SGLang applied."""

    path: str
    module: torch.nn.Module
    twin: torch.nn.Module
    parameters: tuple[str, ...]
    recipe: str

    def method(self) -> str:
        return type(getattr(self.module, "quant_method", None)).__name__


@dataclass(frozen=True)
class Adoption:
    """What a receiver of one rank needs, and where the engine's tensors were when it was made."""

    recording: Recording
    recipe: str
    buffers: dict[str, torch.Tensor]
    layers: tuple[Layer, ...]
    checks: int  # how many self checks were made
    addresses: dict[str, int] = field(default_factory=dict)

    def moved(self) -> str:
        """A tensor that is not where it was, "" if there is none: SGLang's own updates give layers new ones."""
        now = _addresses(self.layers)
        return next((name for name, address in self.addresses.items() if now.get(name) != address), "")


def adopt(model: torch.nn.Module, twin: torch.nn.Module, loaded: Loaded) -> Adoption:
    """Adopts a live model, whose load was recorded on its twin. Raises Unsupported, naming a layer that cannot be."""
    _refuse_what_is_not_copied(twin, loaded)
    layers = tuple(_layers(model, twin, loaded.recording))
    recipe = one_recipe(layer.recipe for layer in layers)
    names = (name for layer in layers if layer.recipe != "none" for name in layer.parameters)
    recording = replace(loaded.recording, quantized=quantized(names, loaded.recording))
    checked: dict[Any, str] = {}
    for layer in layers:
        part = recording.of_parameters(set(layer.parameters))
        key = kind_of(layer.module, own_tensors(layer.module), part, layer.recipe)
        if key not in checked:
            checked[key] = check(layer, part)
        if checked[key]:
            raise Unsupported(f"layer {layer.path} ({layer.method()}): {checked[key]}")
    buffers = {}
    for layer in layers:
        part = recording.of_parameters(set(layer.parameters))
        buffers.update(buffers_in(own_tensors(layer.module), part, layer.recipe))
    return Adoption(recording, recipe, buffers, layers, len(checked), _addresses(layers))


def check(layer: Layer, part: Recording) -> str:
    """Loads known weights twice, by SGLang's code and by Layercast's; "" if every byte is the same, else why not."""
    live = own_tensors(layer.module)
    memory = {name: copy_of(tensor) for name, tensor in live.items()}
    wait_for(next(iter(live.values())).device)
    sources = known_weights(part)
    try:
        theirs = processed(layer.twin, _by_own_name(replayed(part, sources)), live)
        with Receiver(part, buffers=buffers_in(memory, part, layer.recipe), quantization=layer.recipe) as receiver:
            receiver.reload_weights(sources)
    except (NotAdoptable, Error) as why:
        return str(why)
    except Exception as why:  # noqa: BLE001  SGLang's own processing: whatever it is, the layer is not adopted
        return f"SGLang's processing of known weights: {why!r}"
    return difference(memory, theirs)


def _refuse_what_is_not_copied(twin: torch.nn.Module, loaded: Loaded) -> None:
    if loaded.computed:
        name, why = next(iter(loaded.computed.items()))
        raise Unsupported(f"'{name}': expected a loader that copies, got one that computes values ({why})")
    filled = {spec.name for spec in loaded.recording.parameters}
    for name, _ in twin.named_parameters():
        if name.endswith("weight") and name not in filled:
            raise Unsupported(f"'{name}': expected tensors that fill it, got none: it would keep what it serves")


def _layers(model: torch.nn.Module, twin: torch.nn.Module, recording: Recording) -> Iterator[Layer]:
    for path, names in by_layer(recording).items():
        module = model.get_submodule(path)
        module = getattr(module, "base_layer", module)  # of a layer that SGLang wrapped for LoRA
        own = own_tensors(module)
        for name in names:
            if name.rpartition(".")[2] not in own:
                raise Unsupported(f"layer {path}: expected a tensor '{name.rpartition('.')[2]}', got none")
        yield Layer(path, module, twin.get_submodule(path), names, _recipe(names, own, recording))


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


def _by_own_name(parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.rpartition(".")[2]: tensor for name, tensor in parameters.items()}


def _addresses(layers: tuple[Layer, ...]) -> dict[str, int]:
    return {
        f"{layer.path}.{name}": tensor.data_ptr()
        for layer in layers
        for name, tensor in own_tensors(layer.module).items()
    }
