"""Kernel tensors that SGLang's own code makes of a version, for the layers that are not adopted."""

from __future__ import annotations

import torch

from layercast.host.loader_run import Tensors, computed_values, prove_loader
from layercast.host.made import copy_in
from layercast.host.whole_sources import whole_sources
from layercast.sglang.adoption import Adoption, Layer, by_own_name, refuse_what_copies_miss
from layercast.sglang.twin import loader_of, own_tensors, processed, tensors_among, tensors_of

Made = list[tuple[Layer, Tensors]]


def made(model: torch.nn.Module, adoption: Adoption, staged: Tensors) -> Made:
    """The kernel tensors of each layer that is not adopted, in fresh memory, of what was staged for it.

    To be called on all ranks at once: SGLang's code may communicate. Raises what it raises, and Unsupported where they
    would not fit; the live weights are as they were.
    """
    values = staged | _computed(model, adoption, whole_sources(adoption.beside, staged))
    found = []
    for layer in adoption.reloaded():
        given = {name: values[name] for name in (*layer.parameters, *layer.computed)}
        attributes = processed(layer.twin, by_own_name(given), own_tensors(layer.module))
        refuse_what_copies_miss(layer, attributes)
        found.append((layer, tensors_among(attributes)))
    return found


def copy_made(found: Made) -> None:
    for layer, tensors in found:
        copy_in(tensors, own_tensors(layer.module))


def prove_computed(model: torch.nn.Module, adoption: Adoption) -> None:
    """Raises Unsupported for what cannot be left to SGLang's loader: prove_loader."""
    prove_loader(lambda sources, fill: _computed(model, adoption, sources, fill), adoption.loaded, "SGLang's")


def _computed(model: torch.nn.Module, adoption: Adoption, sources: Tensors, fill: int = 0) -> Tensors:
    if not adoption.loaded.computed:
        return {}
    live = list(tensors_of(model).values())
    load = loader_of(adoption.twin, live[0].device)
    return computed_values(load, adoption.twin, adoption.loaded, sources, live, fill)
