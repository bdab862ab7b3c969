"""LoRA adapters of publishers for an SGLang engine, in memory: by its own ``load_lora_adapter_from_tensors``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from layercast._native import Version
from layercast.errors import FailedPrecondition, Unsupported
from layercast.offered import FetchedAdapter, find_adapter


def load_adapter(
    engine: Any,
    name: str,
    endpoints: str | Iterable[str],
    *,
    adapter: str = "",
    lineage: str = "",
    step: int | None = None,
    timeout: float = 300.0,
) -> Version:
    """Loads an adapter, or its new version, into a ``sglang.Engine``; requests name it by ``lora_path=name``.

    ``adapter`` is what the version calls it. SGLang has no way to replace one: the old version is unloaded first, once no
    request uses it, and until the new one is there requests for the name fail. The new one is fetched before that. SGLang
    keys its prefix cache on a number that each load makes anew.

    Raises Unsupported for adapters with patterns of ranks or alphas, which SGLang would scale wrongly;
    FailedPrecondition, in SGLang's words, for what it refuses; and as :func:`layercast.offered.find_adapter`.
    """
    fetched = find_adapter(endpoints, name=adapter, lineage=lineage, step=step, timeout=timeout).fetch()
    config = config_for_sglang(fetched)
    if name in engine.tokenizer_manager.lora_registry.get_all_adapters():
        _require(engine.unload_lora_adapter(name), name)
    _require(engine.load_lora_adapter_from_tensors(name, fetched.tensors, config), name)
    return fetched.version


def config_for_sglang(adapter: FetchedAdapter) -> dict[str, Any]:
    """An adapter_config.json of which SGLang reads the right scale: it takes ``lora_alpha / r`` for all modules, whatever
    else is said."""
    config = adapter.config
    for field in ("rank_pattern", "alpha_pattern"):
        if config.get(field):
            raise Unsupported(
                f"adapter '{adapter.name}' of {adapter.version}: {field}: expected one rank and scale for all modules, "
                f"which is what SGLang applies, got {config[field]}"
            )
    alpha = config["lora_alpha"] * (math.sqrt(config["r"]) if config.get("use_rslora") else 1)
    modules = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in adapter.tensors})
    return {
        "peft_type": "LORA",
        "r": config["r"],
        "lora_alpha": alpha,
        "target_modules": modules,
    }


def _require(answer: Any, name: str) -> None:
    if not answer.success:
        raise FailedPrecondition(f"adapter '{name}': {answer.error_message}")
