"""A second model on meta: a live SGLang model as its loader knows it, before anything is quantized.

Why a second one: a quantized live model has new Parameters without weight_loader, so its loader would not find its way
any more. A twin needs no hook while the engine loads, costs no memory, and no live module is ever changed for it.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from layercast.errors import Error, Unsupported
from layercast.host.loaded import Loaded
from layercast.host.module_state import like, put, put_back
from layercast.host.recorder import record
from layercast.tensor import TensorSpec


def twin_of(model: torch.nn.Module) -> torch.nn.Module:
    """Builds a model of the same class, config and quantization, for this rank, without memory.

    Raises Unsupported for a class whose constructor reads values, or takes more than a config.
    """
    from sglang.srt.model_loader.utils import set_default_torch_dtype
    from sglang.srt.runtime_context import get_model

    known = {"shared_experts": model.shared_experts_config} if hasattr(model, "shared_experts_config") else {}
    try:
        with _own_rotary_tables(), set_default_torch_dtype(_dtype_of(model)), torch.device("meta"):
            with get_model().override(**known):
                return type(model)(config=model.config, quant_config=getattr(model, "quant_config", None))
    except Exception as why:
        raise Unsupported(f"{type(model).__name__}: expected a class that can be built on meta, got {why!r}") from why


def recorded(twin: torch.nn.Module, specs: Iterable[TensorSpec], device: torch.device) -> Loaded:
    """Records what SGLang's loader does with these tensors. Raises Unsupported where it cannot be recorded."""
    before = _held(twin)
    try:
        loaded = record(loader_of(twin, device), tensors_of(twin), specs)
    except Error:
        raise
    except Exception as why:
        raise Unsupported(f"{type(twin).__name__}.load_weights: expected to record it, got {why!r}") from why
    made = next((name for name, tensor in _held(twin).items() if before.get(name) is not tensor), "")
    if made and not hasattr(twin, "post_load_weights"):
        raise Unsupported(f"'{made}': a load makes it, and no post_load_weights would make it again after a commit")
    return loaded


def loader_of(model: torch.nn.Module, device: torch.device) -> Callable[[Iterator[tuple[str, torch.Tensor]]], None]:
    """SGLang's own loader of a model's weights."""
    from sglang.srt.model_loader.loader import DefaultModelLoader

    def load(weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        with _submitted_work_runs_here():
            DefaultModelLoader.load_weights_only(model, weights, device)

    return load


def tensors_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def own_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All tensors that a module itself holds, by name: SGLang keeps derived scales as plain attributes too."""
    return tensors_among({**module.__dict__, **module._parameters, **module._buffers})


def tensors_among(attributes: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in attributes.items() if isinstance(value, torch.Tensor)}


def _held(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All tensors of all modules, by path and name."""
    modules = model.named_modules()
    return {f"{path}.{name}": tensor for path, module in modules for name, tensor in own_tensors(module).items()}


def processed(
    module: torch.nn.Module, parameters: dict[str, torch.Tensor], live: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """What SGLang makes of load-time tensors, on a module of the twin, which is as before afterwards: the module's
    attributes by name, tensors among them. ``parameters``: by their names in the module. What is not among them is as
    in ``live``."""
    device = next((tensor.device for tensor in live.values()), torch.device("cpu"))
    with put_back([module]), torch.no_grad():
        for name, tensor in own_tensors(module).items():
            values = parameters.get(name, live.get(name))
            if values is None or values.shape != tensor.shape or values.dtype != tensor.dtype:
                values = torch.zeros(tensor.shape, dtype=tensor.dtype)
            put(module, name, like(tensor, values.detach().to(device, copy=True)))
        method = getattr(module, "quant_method", None)
        if method is not None:
            method.process_weights_after_loading(module)
        return {**vars(module), **{name: tensor.detach() for name, tensor in own_tensors(module).items()}}


def _dtype_of(model: torch.nn.Module) -> torch.dtype:
    """The dtype in which SGLang builds this model, from its config and --dtype."""
    from sglang.srt.configs.model_config import _get_and_verify_dtype
    from sglang.srt.runtime_context import get_model
    from sglang.srt.utils.hf_transformers_utils import get_hf_text_config

    dtype: torch.dtype = _get_and_verify_dtype(get_hf_text_config(model.config), get_model().dtype)
    return dtype


@contextmanager
def _own_rotary_tables() -> Iterator[None]:
    """The cache of rotary tables is one for the process: the next real model must not find tables on meta there."""
    from sglang.srt.layers.rotary_embedding import factory

    kept = dict(factory._ROPE_DICT)
    try:
        yield
    finally:
        factory._ROPE_DICT.clear()
        factory._ROPE_DICT.update(kept)


@contextmanager
def _submitted_work_runs_here() -> Iterator[None]:
    """Some loaders hand experts to a thread pool, and a recorder sees its own thread alone: what this thread submits
    is run at once. Other threads' pools are as ever."""
    pool, here = concurrent.futures.ThreadPoolExecutor, threading.get_ident()
    submit = pool.submit

    def run(self: Any, work: Any, /, *arguments: Any, **options: Any) -> Any:
        if threading.get_ident() != here:
            return submit(self, work, *arguments, **options)
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            done.set_result(work(*arguments, **options))
        except Exception as error:  # noqa: BLE001  it is raised where the result is asked for
            done.set_exception(error)
        return done

    pool.submit = run  # type: ignore[method-assign]
    try:
        yield
    finally:
        pool.submit = submit  # type: ignore[method-assign]
