"""The text of a model's config.json, which engines hold against their own."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from layercast.trainer.wrappers import Wrappers


def config(module: nn.Module, dtype: torch.dtype | None = None) -> str:
    """What save_pretrained would write to config.json, if the weights were of `dtype` (None: as they are held). "" for
    a module that is none of transformers'. Does not change the module's own configuration, as save_pretrained does."""
    model: Any = Wrappers().unwrapped(module)
    if not hasattr(getattr(model, "config", None), "to_json_string"):
        return ""
    written = copy.deepcopy(model.config)
    written.dtype = str(dtype or model.dtype).removeprefix("torch.")
    written.architectures = [type(model).__name__.removeprefix("FSDP")]
    text: str = written.to_json_string()
    return text
