"""What a worker serves, held against a cold load of a checkpoint, byte by byte."""

from __future__ import annotations

from typing import Any

import torch

from layercast.host.known_weights import copy_of
from layercast.host.receivers import memory_for
from layercast.receiver import Receiver
from layercast.vllm.adoption import Adoption
from layercast.vllm.load_time import own_tensors
from layercast.vllm.reloaded import made


def differences(
    model: torch.nn.Module, adoption: Adoption, checkpoint: str, tp_rank: int, tp_size: int
) -> list[dict[str, Any]]:
    """The tensors that differ: ``{"tensor", "offset", "served", "expected"}`` of each one's first byte, row-major.

    Holds a second copy of the weights meanwhile. A collective of the ranks, for what vLLM's code makes may communicate.
    """
    cold = {name: copy_of(tensor) for name, tensor in adoption.buffers.items()}
    staged = memory_for(adoption.beside)
    rank = {"tp_rank": tp_rank, "tp_size": tp_size}
    for part, buffers, recipe in ((adoption.recording, cold, adoption.recipe), (adoption.beside, staged, "none")):
        with Receiver(part, buffers=buffers, quantization=recipe, commit="in_place", **rank) as receiver:
            receiver.reload_weights(checkpoint)
    served, expected = dict(adoption.buffers), cold
    for layer, tensors in made(model, adoption, staged):
        live = own_tensors(layer.module)
        for name in tensors.keys() & live.keys():
            served[f"{layer.path}.{name}"], expected[f"{layer.path}.{name}"] = live[name], tensors[name]
    return [found for name in sorted(served) if (found := _first(name, served[name], expected[name]))]


def _first(name: str, served: torch.Tensor, expected: torch.Tensor) -> dict[str, Any] | None:
    one, other = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (served, expected))
    differ = (one != other).nonzero()
    if not differ.numel():
        return None
    offset = int(differ[0])
    return {"tensor": name, "offset": offset, "served": int(one[offset]), "expected": int(other[offset])}
