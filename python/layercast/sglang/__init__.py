"""SGLang takes its weights from Layercast (docs/sglang.md).

``register`` is what SGLang's entry point calls in each of its processes: schedulers get the methods
``layercast_stage``, ``layercast_prepare``, ``layercast_commit``, ``layercast_abort`` and ``layercast_verify``, which
``Engine.collective_rpc`` reaches. ``custom_loader`` is the other door, for ``--custom-weight-loader``; ``request``
makes what it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CUSTOM_LOADER = "layercast.sglang.custom_loader"


def register() -> None:
    """Adds the methods and hooks. May be called again."""
    from layercast.sglang import hooks

    hooks.register()


def custom_loader(model: Any, named_tensors: list[tuple[str, torch.Tensor]]) -> None:
    """Takes the version that a :func:`request` names, whole, before it returns. See layercast.sglang.door."""
    from layercast.sglang import door

    door.load(model, named_tensors)


def request(endpoint: str, *, lineage: str = "", step: int | None = None) -> list[tuple[str, torch.Tensor]]:
    """What ``Engine.update_weights_from_tensor(..., load_format=CUSTOM_LOADER)`` is given in place of weights."""
    from layercast.sglang import door

    return door.request(endpoint, lineage, step)
