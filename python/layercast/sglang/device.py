"""The device that a model's weights are on."""

from __future__ import annotations

import torch


def wait_for(device: torch.device) -> None:
    """Waits for all queues of a device: torch's, SGLang's and Layercast's know nothing of each other."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)
