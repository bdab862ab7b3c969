"""A live vLLM module as its loader knows it: load-time parameters, and what vLLM's processing makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from layercast.host.module_state import put_back


def tensors_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def own_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A module's own parameters and buffers, without its children's."""
    own = {**module._parameters, **module._buffers}
    return {name: tensor for name, tensor in own.items() if tensor is not None}


@contextmanager
def load_time(model: torch.nn.Module, modules: Iterable[torch.nn.Module] | None = None) -> Iterator[None]:
    """Shows loaders the parameters that they know, on meta, also where the model serves quantized ones; then puts all
    that the modules had back. ``modules``: these alone."""
    from vllm.model_executor.model_loader.reload import layerwise, meta

    shown = list(model.modules() if modules is None else modules)
    with put_back(shown):
        for module in shown:
            meta.restore_layer_on_meta(module, layerwise.get_layerwise_info(module))
            for tensor in layerwise.get_layer_tensors(module).values():
                tensor.weight_loader = layerwise._get_original_loader(tensor)
        yield


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
