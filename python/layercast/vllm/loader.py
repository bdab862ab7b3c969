"""``--load-format layercast``: a cold start straight from a publisher, whose endpoint is in LAYERCAST_ENDPOINT."""

from __future__ import annotations

import os
from typing import Any

import torch
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from layercast.errors import InvalidArgument
from layercast.offered import fetch

ENDPOINT = "LAYERCAST_ENDPOINT"


class LayercastLoader(BaseModelLoader):
    """Loads the newest version of a publisher: ``model_loader_extra_config={"endpoint": ...}``, or the environment."""

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        extra = load_config.model_loader_extra_config or {}
        known = {"endpoint", "lineage", "step", "timeout"}
        if not isinstance(extra, dict) or not known.issuperset(extra):
            raise InvalidArgument(f"model_loader_extra_config: expected {', '.join(sorted(known))}, got {extra}")
        self._from = {"endpoint": os.environ.get(ENDPOINT, ""), **extra}
        if not self._from["endpoint"]:
            raise InvalidArgument(
                f"load format layercast: expected a publisher's endpoint in {ENDPOINT} or in "
                'model_loader_extra_config as "endpoint", got none'
            )

    def download_model(self, model_config: Any) -> None:
        """Nothing: the publisher has it."""

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        options = dict(self._from)
        _, tensors = fetch(options.pop("endpoint"), **options)
        model.load_weights(iter(tensors.items()))
