"""PEFT: an adapter on its own, as its save_pretrained writes it: the configuration, and the factors under PEFT's names.
What an adapter makes of the layer below it is in adapters.py."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from layercast.errors import InvalidArgument, NotFound
from layercast.trainer.module import Looked, looked_at_tensors
from layercast.trainer.wrappers import Wrappers, is_a, loaded_class


def looked_at_adapter(module: nn.Module, name: str | None, dtype: torch.dtype | None) -> tuple[str, Looked]:
    """An adapter of a PEFT model, by default its active one: the text of its adapter_config.json, and the tensors, which
    are the trainer's own. ``dtype``: they are cast to it; by default they stay as they are.

    Raises InvalidArgument for a module without adapters and for one of which several are active, and NotFound.
    """
    model = _peft_model(module)
    name = _active(model) if name is None else name
    if name not in model.peft_config:
        raise NotFound(f"the model has no adapter '{name}': expected one of {', '.join(model.peft_config)}")
    _shard_again(model)
    factors = {}
    for path, tensor in model.named_parameters(remove_duplicate=False):
        own = _name_in_file(path, name, model.peft_config)
        if own is not None:
            factors[own] = tensor
    if not factors:
        raise InvalidArgument(f"adapter '{name}' has no factors (lora_A, lora_B): expected a LoRA adapter")
    return config_text(model.peft_config[name]), looked_at_tensors(factors, dtype)


def config_text(config: Any) -> str:
    """The text of adapter_config.json, with patterns in the order in which the model applies them."""
    fields = {name: sorted(value) if isinstance(value, set) else value for name, value in config.to_dict().items()}
    return json.dumps(fields)


def _peft_model(module: nn.Module) -> Any:
    """PEFT's model, or one of transformers with adapters that it added itself."""
    wrappers, model = Wrappers(), module
    while not is_a(model, "peft.peft_model", "PeftModel"):
        below = wrappers.child(model)
        if below is None:
            if getattr(model, "peft_config", None):
                return model
            raise InvalidArgument(f"expected a PEFT model (peft.PeftModel), got {type(module).__name__} without adapters")
        model = below
    return model


def _active(model: Any) -> str:
    active = model.active_adapters
    names = list(active() if callable(active) else active)
    if len(names) != 1:
        raise InvalidArgument(f"expected one active adapter, got {names}: say which, as (model, name)")
    name: str = names[0]
    return name


def _shard_again(model: nn.Module) -> None:
    """FSDP2's parameters, if a forward pass left them gathered."""
    sharded = loaded_class("torch.distributed.fsdp", "FSDPModule")
    if sharded is None:
        return
    for module in model.modules():
        if isinstance(module, sharded):
            module.reshard()


def _name_in_file(path: str, adapter: str, adapters: Any) -> str | None:
    """Of "...q_proj.lora_A.NAME.weight", the name without NAME; None: it is no factor of this adapter."""
    segments = path.split(".")
    for index, segment in enumerate(segments[:-1]):
        if segment.startswith("lora_"):
            # A name may have dots. The longest that fits is meant: "a.b" beside "a".
            rest = ".".join(segments[index + 1 :])
            fits = [name for name in adapters if rest == name or rest.startswith(f"{name}.")]
            if not fits or max(fits, key=len) != adapter:
                return None
            return ".".join(segments[: index + 1]) + rest[len(adapter) :]
    return None
