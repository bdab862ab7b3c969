"""Finds the memory in which a live vLLM model keeps each parameter, and proves that Layercast fills it as vLLM would.

Each layer goes one of two ways. *adopted*: its kernel tensors are handed to a :class:`layercast.Receiver`, which writes
them in place. *reloaded*: its load-time tensors are staged in memory of their own, and vLLM's own code makes kernel
tensors of them at the commit (Marlin, AMX, packed experts). A layer is adopted if known weights, loaded by vLLM and by
Layercast, gave the same bytes, padding included. One check is made for each class, method and shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from layercast.dtypes import torch_dtype
from layercast.errors import Error, Unsupported
from layercast.receiver import Receiver, buffer_specs
from layercast.recording import Recording
from layercast.tensor import TensorSpec
from layercast.vllm.recorder import Loaded, load_time, tensors_of

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
    """A module that a load fills, and the way in which it is filled. ``why``: why it is not adopted; "" if it is."""

    path: str
    module: torch.nn.Module
    parameters: tuple[str, ...]
    recipe: str = "none"
    why: str = ""

    @property
    def adopted(self) -> bool:
        return not self.why


@dataclass(frozen=True)
class Adoption:
    """What a receiver of one worker needs: the recording, the buffers by kernel name, and the recipe."""

    recording: Recording
    recipe: str
    buffers: dict[str, torch.Tensor]
    layers: tuple[Layer, ...]
    checks: int = 0  # how many self checks were made
    seconds: float = 0.0

    def reloaded(self) -> list[Layer]:
        return [layer for layer in self.layers if not layer.adopted]


def adopt(model: torch.nn.Module, loaded: Loaded) -> Adoption:
    """Adopts what can be adopted of a live model, whose load was recorded.

    Runs vLLM's processing of known weights, on tensors of its own; on all ranks at once, since that may communicate.
    Raises Unsupported, naming it, for a parameter that cannot be filled in either way.
    """
    if loaded.computed:
        name, why = next(iter(loaded.computed.items()))
        more = f", and {len(loaded.computed) - 1} more" if len(loaded.computed) > 1 else ""
        raise Unsupported(f"'{name}'{more}: expected a loader that copies, got one that computes values ({why})")
    checks = _Checks()
    layers = [checks.decide(layer, loaded.recording) for layer in _layers(model, loaded.recording)]
    recipes = sorted({layer.recipe for layer in layers if layer.adopted} - {"none"})
    if len(recipes) > 1:
        raise Unsupported(f"expected one recipe for all layers, got {' and '.join(recipes)}")
    recording = replace(loaded.recording, quantized=_quantized(layers, loaded.recording))
    recipe = recipes[0] if recipes else "none"
    buffers = {}
    for layer in layers:
        buffers.update(_buffers(layer, recording.of_parameters(set(layer.parameters))))
    return Adoption(recording, recipe, buffers, tuple(layers), checks.made)


def _layers(model: torch.nn.Module, recording: Recording) -> Iterator[Layer]:
    by_path: dict[str, list[str]] = {}
    for spec in recording.parameters:
        by_path.setdefault(spec.name.rpartition(".")[0], []).append(spec.name)
    seen: dict[int, str] = {}
    for path, names in by_path.items():
        module = model.get_submodule(path)
        for name in names:
            tensor = getattr(module, name.rpartition(".")[2], None)
            address = tensor.data_ptr() if isinstance(tensor, torch.Tensor) and tensor.numel() else 0
            if address and address in seen:
                raise Unsupported(
                    f"'{name}' and '{seen[address]}' are one tensor in this engine, which tied them when it loaded a "
                    "checkpoint in which they were equal: expected a config with tie_word_embeddings, or two tensors"
                )
            seen[address] = name
        method = type(getattr(module, "quant_method", None)).__name__
        yield Layer(path, module, tuple(names), RECIPES.get(method, "none"))


def _quantized(layers: list[Layer], recording: Recording) -> frozenset[str]:
    floating = {spec.name for spec in recording.parameters if spec.dtype in ("BF16", "F16", "F32")}
    ranks = {spec.name: len(spec.shape) for spec in recording.parameters}
    return frozenset(
        name
        for layer in layers
        if layer.adopted and layer.recipe != "none"
        for name in layer.parameters
        if name.endswith("weight") and name in floating and ranks[name] > 1
    )


def _buffers(layer: Layer, part: Recording) -> dict[str, torch.Tensor]:
    """The tensors that a receiver writes for this layer."""
    if not layer.adopted:
        return {spec.name: torch.zeros(spec.shape, dtype=torch_dtype(spec.dtype)) for spec in part.parameters}
    found = {}
    for spec in buffer_specs(part, quantization=layer.recipe):
        live = getattr(layer.module, spec.name.rpartition(".")[2], None)
        if not isinstance(live, torch.Tensor):
            raise _NotAdoptable(f"it has no tensor '{spec.name.rpartition('.')[2]}'")
        found[spec.name] = tensor_in(live.data, spec)
    return found


class _NotAdoptable(Exception):
    pass


def tensor_in(live: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """The view of an engine's memory that is the tensor ``spec``: transposed, padded, or in another number of axes.

    kernel layout -> ours: the same; [K, N] of strides (1, K) (torch._scaled_mm, Cutlass); rows and columns padded to
    multiples of 16 (Cutlass); a number as [1] or []; scales [N] or [1, N] for [N, 1]; column-major scales (DeepGEMM).
    """
    if live.dtype != torch_dtype(spec.dtype):
        raise _NotAdoptable(f"'{spec.name}': expected {torch_dtype(spec.dtype)}, got {live.dtype}")
    shape = tuple(spec.shape)
    ways = [live, live.transpose(-1, -2)] if live.dim() > 1 else [live]
    ways.sort(key=lambda way: not way.is_contiguous())  # of a square, the one that lies as ours
    for way in ways:
        if tuple(way.shape) == shape:
            return way
    if live.numel() == math.prod(shape) and live.is_contiguous():
        return live.view(shape)
    for way in ways:
        if way.dim() == len(shape) and all(_padded(extent) == have for extent, have in zip(shape, way.shape)):
            return way[tuple(slice(0, extent) for extent in shape)]
    if live.dim() == 1 and shape[1:] == (1,) and _padded(shape[0]) == live.shape[0]:
        return live[: shape[0]].unsqueeze(1)
    raise _NotAdoptable(f"'{spec.name}': expected {list(shape)}, got {list(live.shape)} strides {list(live.stride())}")


_ALIGNMENT = 16


def _padded(extent: int) -> int:
    return math.ceil(extent / _ALIGNMENT) * _ALIGNMENT if extent > 1 else extent


@dataclass
class _Checks:
    """The self checks of one model: one for each class, method and shapes."""

    results: dict[Any, str] = field(default_factory=dict)
    made: int = 0

    def decide(self, layer: Layer, recording: Recording) -> Layer:
        part = recording.of_parameters(set(layer.parameters))
        method = type(getattr(layer.module, "quant_method", None))
        key = (
            type(layer.module),
            method,
            tuple((spec.name.rpartition(".")[2], spec.dtype, spec.shape) for spec in part.parameters),
            tuple((spec.dtype, spec.shape) for spec in part.sources),
            tuple((copy.source_box, copy.box, copy.transposed) for copy in part.copies),
        )
        if key not in self.results:
            self.made += 1
            part = replace(part, quantized=_quantized([layer], part))
            try:
                self.results[key] = check(layer, part)
            except (_NotAdoptable, Error) as why:
                self.results[key] = str(why)
        return replace(layer, why=self.results[key])


def check(layer: Layer, part: Recording) -> str:
    """Loads known weights twice, by vLLM's code and by Layercast's; "" if every byte is the same, else the first
    difference."""
    sources = known_weights(part)
    memory = {name: _copy_of(tensor) for name, tensor in own_tensors(layer.module).items()}
    kept = {name: tensor.data for name, tensor in own_tensors(layer.module).items()}
    theirs = processed(layer.module, replayed(part, sources))
    stand_in = replace(layer, module=_Tensors(memory))
    with Receiver(part, buffers=_buffers(stand_in, part), quantization=layer.recipe) as receiver:
        receiver.reload_weights(sources)
    for name, tensor in own_tensors(layer.module).items():
        assert tensor.data_ptr() == kept[name].data_ptr()
    return difference(memory, theirs)


def difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> str:
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            return f"'{name}' is there on one side alone"
        if ours[name].shape != theirs[name].shape or ours[name].stride() != theirs[name].stride():
            return f"'{name}': expected {list(theirs[name].shape)} {theirs[name].stride()}, got {list(ours[name].shape)}"
        different = _bytes_of(ours[name]) != _bytes_of(theirs[name])
        if different.any():
            return f"'{name}': {int(different.sum())} of {different.numel()} bytes of known weights differ from vLLM's"
    return ""


class _Tensors:
    """Stands for a module: its tensors, as attributes."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.__dict__.update(tensors)


def own_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    own = {**module._parameters, **module._buffers}
    return {name: tensor for name, tensor in own.items() if tensor is not None}


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor.data)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def known_weights(part: Recording) -> dict[str, torch.Tensor]:
    """Random values, the same on every rank: of the range of weights, and above zero for scales."""
    sources = {}
    for spec in part.sources:
        random = torch.Generator().manual_seed(hash((spec.shape, spec.dtype)) % 2**31)
        values = torch.randn(spec.shape, generator=random) * 0.05
        if "scale" in spec.name.rpartition(".")[2]:
            values = values.abs() + 0.01
        sources[spec.name] = values.to(torch_dtype(spec.dtype))
    return sources


def replayed(part: Recording, sources: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The recording replayed by torch's copies: load-time parameters by full name."""
    parameters = {spec.name: torch.empty(spec.shape, dtype=torch_dtype(spec.dtype)) for spec in part.parameters}
    for name, boxes in part.zeros.items():
        for box in boxes:
            parameters[name][_index(box)].zero_()
    for copy in part.copies:
        source = sources[copy.source][_index(copy.source_box)]
        to = parameters[copy.parameter][_index(copy.box)]
        if copy.transposed:
            source = source.reshape(source.shape[-2:]).t()
        to.copy_(source.reshape(to.shape))
    return parameters


def _index(box: Any) -> tuple[slice, ...]:
    return tuple(slice(begin, begin + extent) for begin, extent in zip(box.begin, box.extent))


def processed(module: torch.nn.Module, parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The kernel tensors that vLLM makes of load-time ones, by name. The module is as before afterwards."""
    with load_time(module, [module]), torch.no_grad():
        process(module, {name.rpartition(".")[2]: tensor for name, tensor in parameters.items()})
        return {name: tensor.detach() for name, tensor in own_tensors(module).items()}


def process(module: torch.nn.Module, parameters: dict[str, torch.Tensor]) -> None:
    """Runs vLLM's own processing of load-time parameters, on a module that shows them (load_time)."""
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
    from vllm.model_executor.model_loader.reload import layerwise, meta

    live = {name: tensor for name, tensor in own_tensors(module).items() if not tensor.is_meta}
    meta.materialize_layer(module, layerwise.get_layerwise_info(module))
    module.__dict__.pop("_already_called_process_weights_after_loading", None)
    for name, tensor in parameters.items():
        if name in live:  # never on meta (a bias): the live memory is not to be written
            module._parameters[name] = torch.nn.Parameter(tensor.to(live[name].device), requires_grad=False)
        else:
            getattr(module, name).data.copy_(tensor)
    method = getattr(module, "quant_method", None)
    if isinstance(method, QuantizeMethodBase):
        method.process_weights_after_loading(module)


def tensor_table(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All tensors of a model, for checks."""
    return tensors_of(model)
