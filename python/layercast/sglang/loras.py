"""LoRA adapters of publishers for an SGLang engine, in memory: by its own ``load_lora_adapter_from_tensors``.

SGLang's schedulers know an adapter by an id, and its tokenizer manager alone by a name. So a new version is loaded under a
name that nobody asks for, beside the old one; then the name is given its id. Requests under way hold the old one's.
"""

from __future__ import annotations

import math
import uuid
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

    ``adapter`` is what the version calls it. Requests for the name are answered all the time; those under way end with the
    version that they began with, which is then unloaded: this returns after that. SGLang keys its prefix cache on an id
    that each load makes anew. Only where ``--max-loaded-loras`` is set, whose count goes by names, the old version is
    unloaded first, and until the new one is there requests for the name fail.

    Raises Unsupported for adapters with patterns of ranks or alphas, which SGLang would scale wrongly;
    FailedPrecondition, in SGLang's words, for what it refuses; and as :func:`layercast.offered.find_adapter`.
    """
    fetched = find_adapter(endpoints, name=adapter, lineage=lineage, step=step, timeout=timeout).fetch()
    config = config_for_sglang(fetched)
    registry = engine.tokenizer_manager.lora_registry
    is_new = name not in registry.get_all_adapters()
    if is_new or engine.server_args.max_loaded_loras is not None:
        if not is_new:
            _require(engine.unload_lora_adapter(name), name)
        _require(engine.load_lora_adapter_from_tensors(name, fetched.tensors, config), name)
        return fetched.version
    aside = f"{name}@{uuid.uuid4().hex}"
    answer = engine.load_lora_adapter_from_tensors(aside, fetched.tensors, config)
    if aside in engine.tokenizer_manager.pending_lora_unloads:  # some ranks have it
        engine.unload_lora_adapter(aside)
    _require(answer, name)
    engine.loop.run_until_complete(_swap(engine.tokenizer_manager, name, aside))
    _require(engine.unload_lora_adapter(aside), name)
    return fetched.version


async def _swap(manager: Any, name: str, aside: str) -> None:
    """Each of two names gets the other's adapter, between two requests."""
    registry = manager.lora_registry
    async with registry._registry_lock.writer_lock:
        held = registry._registry
        held[name], held[aside] = _called(held[aside], name), _called(held[name], aside)
    manager.lora_ref_cache[name] = held[name]
    manager.lora_ref_cache.pop(aside, None)


def _called(reference: Any, name: str) -> Any:
    return type(reference)(reference.lora_id, name, reference.lora_path, reference.pinned)


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
