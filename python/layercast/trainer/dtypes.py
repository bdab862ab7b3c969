"""Which dtype a tensor is published in. A trainer may hold fp32 masters of a model that is served in bf16."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from layercast.errors import InvalidArgument
from layercast.trainer.wrappers import loaded_class


class Cast:
    """Casts floating-point tensors of more than one byte an element to one dtype; or none."""

    def __init__(self, dtype: torch.dtype | None, kept: re.Pattern[str] | None = None) -> None:
        if dtype is not None and not (
            isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype.itemsize > 1
        ):
            raise InvalidArgument(f"dtype: expected a floating-point torch.dtype of 2 bytes or more, got {dtype!r}")
        self._dtype = dtype
        self._kept = kept

    def __bool__(self) -> bool:
        return self._dtype is not None

    def of(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """The dtype in which the tensor `name`, held in `dtype`, is published."""
        if self._dtype is None or not dtype.is_floating_point or dtype.itemsize == 1:
            return dtype
        if self._kept is not None and self._kept.search(name):
            return dtype
        return self._dtype


def cast_of(module: Any, tensors: Iterable[Tensor], dtype: torch.dtype | None) -> Cast:
    """`dtype` for all floating-point tensors; but those that transformers keeps in fp32 in a model of that dtype (as a
    router's correction biases) stay as they are held, as they would be in a model loaded in it.

    Without `dtype`, that of the model's config if all floating-point tensors are fp32 and it is narrower: then they are
    masters. Else each as it is held."""
    if dtype is None:
        dtype = _of_masters(module, tensors)
    if dtype is None or not _is_transformers(module):
        return Cast(dtype)
    kept = [pattern for pattern, kept in module._get_dtype_plan(dtype).items() if kept == torch.float32]
    if not kept:
        return Cast(dtype)
    from transformers.core_model_loading import build_glob_alternation

    return Cast(dtype, build_glob_alternation(kept)[0])


def _of_masters(module: Any, tensors: Iterable[Tensor]) -> torch.dtype | None:
    configured = getattr(module.config, "dtype", None) if _is_transformers(module) else None
    if not isinstance(configured, torch.dtype) or not configured.is_floating_point or configured.itemsize != 2:
        return None
    held = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return configured if held == {torch.float32} else None


def _is_transformers(module: object) -> bool:
    found = loaded_class("transformers.modeling_utils", "PreTrainedModel")
    return found is not None and isinstance(module, found)
