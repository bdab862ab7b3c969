"""What a publisher is given, as the extension takes it. torch is imported only if the program has imported it, since else
none of its tensors is here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from layercast import _native
from layercast._native import Version
from layercast.errors import InvalidArgument

if TYPE_CHECKING:
    from layercast.trainer import Source

Rank = tuple[int, int]  # (rank, ranks)
Adapters = Literal["merge", "base"]  # what becomes of a PEFT model's adapters


@dataclass(frozen=True, slots=True)
class How:
    """``stay``: tensors on a device are published from there; ``alone``: this rank publishes all that it holds."""

    dtype: Any
    borrowed: bool
    stream: bool
    stay: bool
    alone: bool
    load_format: str = "auto"


def weights_of_source(source: Source, how: How, config: str) -> _native.Weights:
    text = config or source.config
    if not how.stream and not source.pieces.makes_memory:  # a list is walked without Python
        return _native.Weights.of_list(list(source.pieces), how.borrowed, how.stay, text)
    if not how.borrowed and not how.stream:
        return _native.Weights.of_iterator(source.pieces, how.stay, text)
    return _native.Weights.of_pieces(source.pieces, source.specs(), how.borrowed, how.stay, text)


def weights_without_torch(weights: Any, how: How, config: str) -> _native.Weights:
    """A checkpoint's path, pairs of any kind, or an iterator of them."""
    if isinstance(weights, (str, os.PathLike)):
        return _native.Weights.of_checkpoint(os.fspath(weights), how.load_format, config)
    if isinstance(weights, Mapping):
        weights = list(weights.items())
    if isinstance(weights, (list, tuple)):
        return _native.Weights.of_list(list(weights), how.borrowed, how.stay, config)
    if how.borrowed or how.stream:
        kind = "borrowed" if how.borrowed else "streamed"
        raise InvalidArgument(f"an iterator is walked once, and cannot be {kind}: expected a module, a dict or a list")
    if not isinstance(weights, Iterable):
        got = type(weights).__name__
        raise InvalidArgument(f"weights: expected a module, a dict, (name, tensor) pairs or a path, got {got}")
    return _native.Weights.of_iterator(weights, how.stay, config)


def adapters_and_base(
    adapters: Mapping[str, Any],
    base: Any,
    how: How,
    config: str,
    base_versions: Mapping[str, Version | None],
) -> tuple[list[_native.AdapterWeights], _native.Weights | None, Rank | None]:
    """What this rank gives of one version, and its number among the ranks that give something (None: it gives nothing).

    Raises InvalidArgument for an adapter that is none, and for one that is no module's in a trainer of several ranks:
    each of them would publish it.
    """
    sources, of_base = _torch_sources(adapters, base, how)
    found = [source for _, source in filter(None, sources.values())] + ([] if of_base is None else [of_base])
    part = found[0].part if found else (0, 1)
    if part is None:
        return [], None, None
    others = [name for name, source in sources.items() if source is None]
    if part[1] > 1 and (others or (base is not None and of_base is None)):
        what = f"adapter '{others[0]}'" if others else "the base"
        raise InvalidArgument(f"{what}: expected torch's tensors, since {part[1]} ranks publish together; one that "
                              "publishes alone says so, by rank=(0, 1)")  # fmt: skip
    given = []
    for name, adapter in adapters.items():
        source, version = sources[name], base_versions.get(name)
        if source is not None:
            text, weights = _text(name, source[0]), _held(source[1], how, "")
            given.append(_native.AdapterWeights.of_tensors(name, text, weights, version))
        elif isinstance(adapter, (str, os.PathLike)):
            given.append(_native.AdapterWeights.of_folder(name, os.fspath(adapter), version))
        elif isinstance(adapter, (tuple, list)) and len(adapter) == 2:
            weights = weights_without_torch(adapter[1], how, "")
            given.append(_native.AdapterWeights.of_tensors(name, _text(name, adapter[0]), weights, version))
        else:
            got = type(adapter).__name__
            raise InvalidArgument(f"adapter '{name}': expected a PEFT folder, a PEFT model, (model, name) or "
                                  f"(configuration, tensors), got {got}")  # fmt: skip
    if of_base is not None:
        return given, _held(of_base, how, config), part
    return given, None if base is None else weights_without_torch(base, how, config), part


def _held(source: Source, how: How, config: str) -> _native.Weights:
    """Of a rank that publishes something, though maybe nothing of this source."""
    if not len(source.pieces):
        return _native.Weights.of_nothing(config or source.config)
    return weights_of_source(source, how, config)


def _torch_sources(
    adapters: Mapping[str, Any], base: Any, how: How
) -> tuple[dict[str, tuple[str, Source] | None], Source | None]:
    if "torch" not in sys.modules:
        return dict.fromkeys(adapters), None
    from layercast.trainer import sources_of_adapters

    sources, of_base = sources_of_adapters(adapters.values(), base, dtype=how.dtype, alone=how.alone)
    return dict(zip(adapters, sources, strict=True)), of_base


def _text(name: str, config: Any) -> str:
    if isinstance(config, str):
        return config
    if isinstance(config, Mapping):
        return json.dumps({key: sorted(value) if isinstance(value, set) else value for key, value in config.items()})
    got = type(config).__name__
    raise InvalidArgument(f"adapter '{name}': expected the text or the dict of an adapter_config.json, got {got}")


def source_of_torch(weights: Any, how: How, adapters: Adapters, gather: bool) -> Source | None:
    """None: not of torch."""
    if "torch" not in sys.modules or isinstance(weights, (str, os.PathLike)):
        return None
    from layercast.trainer import source_of

    return source_of(weights, dtype=how.dtype, adapters=adapters, gather=gather, alone=how.alone)


def refuse_torch_options(weights: Any, dtype: Any, adapters: Adapters, gather: bool) -> None:
    for option, given in (("dtype", dtype is not None), ("adapters", adapters != "merge"), ("gather", gather)):
        if given:
            raise InvalidArgument(f"{option} is for a module or a state dict of torch's, got {type(weights).__name__}")
