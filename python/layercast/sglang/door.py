"""The door without methods: a custom weight loader, which SGLang calls with one small tensor in place of weights.

The tensor holds UTF-8 JSON, ``{"endpoint": ..., "lineage": ..., "step": ...}``. Everything else is pulled. SGLang calls
it inside a session of begin_weight_update and end_weight_update, on the scheduler's thread: no batch runs meanwhile.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from layercast.errors import FailedPrecondition, InvalidArgument
from layercast.sglang import update
from layercast.sglang.hooks import ends_are_hooked
from layercast.sglang.rank import rank_of
from layercast.sglang.refusals import refuse_pipelines
from layercast.sglang.together import together

NAME = "layercast.request"
_TIMEOUT = 300.0
_KNOWN = {"endpoint", "lineage", "step"}

# Methods at which end_weight_update does nothing on a GPU, so that no hook has to spare what was written.
_UNPROCESSED = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}


def request(endpoint: str, lineage: str, step: int | None) -> list[tuple[str, torch.Tensor]]:
    text = json.dumps({"endpoint": endpoint, "lineage": lineage, "step": step})
    return [(NAME, torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8))]


def load(model: Any, named_tensors: list[tuple[str, torch.Tensor]]) -> None:
    """Stages a version and commits it, on all ranks or on none.

    Raises InvalidArgument (no request), FailedPrecondition (end_weight_update would process what is written), and as
    the scheduler's methods. Without the plug-in's hooks, SGLang does not survive an exception here.
    """
    asked = together(lambda: _asked(model, named_tensors))[0]
    rank = rank_of(model)
    update.stage(rank, asked["endpoint"], asked.get("lineage") or "", asked.get("step"), _TIMEOUT)
    update.prepare(rank, _TIMEOUT)
    update.commit(rank)
    rank.wrote_in_session = ends_are_hooked()


def _asked(model: Any, named_tensors: list[tuple[str, torch.Tensor]]) -> dict[str, Any]:
    refuse_pipelines()
    _refuse_if_processed_again(model)
    if [name for name, _ in named_tensors] != [NAME]:
        raise InvalidArgument(f"expected the one tensor '{NAME}', got {[name for name, _ in named_tensors][:3]}")
    try:
        asked: dict[str, Any] = json.loads(bytes(named_tensors[0][1].cpu().tolist()))
    except ValueError as why:
        raise InvalidArgument(f"'{NAME}': expected JSON, got {why}") from why
    if not _KNOWN.issuperset(asked) or not asked.get("endpoint"):
        raise InvalidArgument(f"'{NAME}': expected an endpoint, lineage and step, got {asked}")
    return asked


def _refuse_if_processed_again(model: Any) -> None:
    if ends_are_hooked():
        return
    for path, module in model.named_modules():
        method = type(getattr(module, "quant_method", None)).__name__
        if method not in _UNPROCESSED | {"NoneType"}:
            raise FailedPrecondition(
                f"layer {path} ({method}): end_weight_update would process it again; expected SGLang to run with "
                "Layercast's plug-in (SGLANG_PLUGINS names it, or is empty)"
            )
