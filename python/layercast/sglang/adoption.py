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
from layercast.host.loaded import Loaded
from layercast.host.views import NotAdoptable, tensor_in
from layercast.receiver import Receiver, buffer_specs
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
    recipes = sorted({layer.recipe for layer in layers} - {"none"})
    if len(recipes) > 1:
        raise Unsupported(f"expected one recipe for all layers, got {' and '.join(recipes)}")
    recording = replace(loaded.recording, quantized=_quantized(layers, loaded.recording))
    checked: dict[Any, str] = {}
    for layer in layers:
        part = recording.of_parameters(set(layer.parameters))
        key = _key(layer, part)
        if key not in checked:
            checked[key] = check(layer, part)
        if checked[key]:
            raise Unsupported(f"layer {layer.path} ({layer.method()}): {checked[key]}")
    buffers = {}
    for layer in layers:
        buffers.update(_buffers(layer, own_tensors(layer.module), recording.of_parameters(set(layer.parameters))))
    recipe = recipes[0] if recipes else "none"
    return Adoption(recording, recipe, buffers, layers, len(checked), _addresses(layers))


def check(layer: Layer, part: Recording) -> str:
    """Loads known weights twice, by SGLang's code and by Layercast's; "" if every byte is the same, else why not."""
    live = own_tensors(layer.module)
    memory = {name: copy_of(tensor) for name, tensor in live.items()}
    wait_for(next(iter(live.values())).device)
    sources = _decisive(known_weights(part)) if part.quantized else known_weights(part)
    try:
        theirs = processed(layer.twin, _by_own_name(replayed(part, sources)), live)
        with Receiver(part, buffers=_buffers(layer, memory, part), quantization=layer.recipe) as receiver:
            receiver.reload_weights(sources)
    except (NotAdoptable, Error) as why:
        return str(why)
    except Exception as why:  # noqa: BLE001  SGLang's own processing: whatever it is, the layer is not adopted
        return f"SGLang's processing of known weights: {why!r}"
    return difference(memory, theirs)


def _decisive(sources: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Known weights that tell recipes apart which differ in rounding alone: the largest magnitude of most rows is a
    power of two, whose 448th part is not exact, and that of one row is tiny."""
    for weight in sources.values():
        if weight.dim() < 2 or not weight.is_floating_point() or weight.element_size() < 2:
            continue
        weight.clamp_(-0.2, 0.2)[..., 0] = 0.25
        weight[..., -1, :] *= 2.0**-14
    return sources


def _refuse_what_is_not_copied(twin: torch.nn.Module, loaded: Loaded) -> None:
    if loaded.computed:
        name, why = next(iter(loaded.computed.items()))
        raise Unsupported(f"'{name}': expected a loader that copies, got one that computes values ({why})")
    filled = {spec.name for spec in loaded.recording.parameters}
    for name, _ in twin.named_parameters():
        if name.endswith("weight") and name not in filled:
            raise Unsupported(f"'{name}': expected tensors that fill it, got none: it would keep what it serves")


def _layers(model: torch.nn.Module, twin: torch.nn.Module, recording: Recording) -> Iterator[Layer]:
    by_path: dict[str, list[str]] = {}
    for spec in recording.parameters:
        by_path.setdefault(spec.name.rpartition(".")[0], []).append(spec.name)
    for path, names in by_path.items():
        module = model.get_submodule(path)
        module = getattr(module, "base_layer", module)  # of a layer that SGLang wrapped for LoRA
        own = own_tensors(module)
        for name in names:
            if name.rpartition(".")[2] not in own:
                raise Unsupported(f"layer {path}: expected a tensor '{name.rpartition('.')[2]}', got none")
        yield Layer(path, module, twin.get_submodule(path), tuple(names), _recipe(names, own, recording))


_FULL_PRECISION = ("BF16", "F16", "F32")


def _recipe(names: list[str], live: dict[str, torch.Tensor], recording: Recording) -> str:
    """The recipe that SGLang applied, by what it made: FP8 of full precision, with scales of one shape or another."""
    dtypes = {spec.name: spec.dtype for spec in recording.parameters}
    for name in names:
        own = name.rpartition(".")[2]
        if dtypes[name] not in _FULL_PRECISION or live[own].dtype != torch.float8_e4m3fn:
            continue
        if f"{own}_scale_inv" in live:
            return "fp8_per_block"
        scale = live.get(f"{own}_scale")
        per_tensor = scale is not None and scale.numel() == live[own].shape[:-2].numel()
        return "fp8_per_tensor" if per_tensor else "fp8_per_channel"
    return "none"


def _quantized(layers: tuple[Layer, ...], recording: Recording) -> frozenset[str]:
    wide = {spec.name for spec in recording.parameters if spec.dtype in _FULL_PRECISION and len(spec.shape) > 1}
    names = (name for layer in layers if layer.recipe != "none" for name in layer.parameters)
    return frozenset(name for name in names if name.endswith("weight") and name in wide)


def _key(layer: Layer, part: Recording) -> Any:
    return (
        type(layer.module),
        layer.method(),
        layer.recipe,
        tuple((spec.name.rpartition(".")[2], spec.dtype, spec.shape) for spec in part.parameters),
        tuple((name, t.dtype, tuple(t.shape), t.stride()) for name, t in own_tensors(layer.module).items()),
        tuple((spec.dtype, spec.shape) for spec in part.sources),
        tuple((copy.source_box, copy.box, copy.transposed) for copy in part.copies),
    )


def _buffers(layer: Layer, tensors: dict[str, torch.Tensor], part: Recording) -> dict[str, torch.Tensor]:
    """The tensors that a receiver writes for this layer, as views of these kernel tensors."""
    found = {}
    for spec in buffer_specs(part, quantization=layer.recipe):
        name = spec.name.rpartition(".")[2]
        if name not in tensors:
            raise NotAdoptable(f"it has no tensor '{name}'")
        found[spec.name] = tensor_in(tensors[name].data, spec)
    return found


def _by_own_name(parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.rpartition(".")[2]: tensor for name, tensor in parameters.items()}


def _addresses(layers: tuple[Layer, ...]) -> dict[str, int]:
    return {
        f"{layer.path}.{name}": tensor.data_ptr()
        for layer in layers
        for name, tensor in own_tensors(layer.module).items()
    }
