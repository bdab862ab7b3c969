"""vLLM's registry of adapters and their slots, on one worker, which also takes models of Layercast's.

vLLM keeps models on the host and treats slots as a cache of them: a model is written into a slot when a request needs it
or a pin asks for it, and then the one goes that was used least recently. So no slot can be kept from vLLM to be filled
meanwhile: its scheduler counts on all of them, and a worker that has fewer ends. What is filled is what it picks, between
two forward passes. The hooks are of one worker's managers, not of their classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from layercast.errors import Corrupt
from layercast.vllm.sleep import asleep
from layercast.vllm.slot_image import SlotImage


class Slots:
    """Every call is made on vLLM's thread. ``load``: the model that a request means; None: it names a file of vLLM's."""

    def __init__(self, manager: Any, load: Callable[[Any], Any]) -> None:
        self._manager, self._load = manager, load
        self._registry = registry = manager._adapter_manager
        self._requests: dict[int, Any] = {}  # by id, of what Layercast has
        self._used: set[int] = set()  # ids in the latest forward pass
        self._theirs_load, manager._load_adapter = manager._load_adapter, self._load_adapter
        self._theirs_use, manager.set_active_adapters = manager.set_active_adapters, self._use
        self._theirs_add, registry._add_adapter = registry._add_adapter, self._add
        self._theirs_fill, registry.activate_adapter = registry.activate_adapter, self._fill
        self._theirs_clear, registry.remove_all_adapters = registry.remove_all_adapters, self._clear

    def ids(self, paths: set[str]) -> set[int]:
        """Those that requests with these paths have, and vLLM holds."""
        held = self._manager.list_adapters()
        return {id for id, request in self._requests.items() if request.lora_path in paths and id in held}

    def put(self, model: Any) -> None:
        """In the place of the model that has its id, in the same state: in a slot if that was in one, and pinned as it."""
        registry = self._registry
        active, pinned = model.id in registry._active_adapters, self._is_pinned(model.id)
        registry.remove_adapter(model.id)
        registry.add_adapter(model)
        if active:
            registry.activate_adapter(model.id)
            self._check(model.id)
        if pinned:
            registry.pin_adapter(model.id)

    def offer(self, request: Any, before: set[int]) -> None:
        """Loads it into a slot that no request needs now, if there is one; else vLLM does with its first request. It is
        pinned if one of those ids is, which are not any more."""
        registry, pinned = self._registry, [id for id in before if self._is_pinned(id)]
        self._requests[request.lora_int_id] = request
        for id in pinned:
            registry._registered_adapters._unpin(id)
            registry._active_adapters.pinned_items.discard(id)
        if pinned or self._spare():
            self._manager.add_adapter(request)
            self._check(request.lora_int_id)
        if pinned:
            registry.pin_adapter(request.lora_int_id)

    def drop(self, paths: set[str]) -> None:
        """No request has one of these paths any more."""
        for id in [id for id, request in self._requests.items() if request.lora_path in paths]:
            self._manager.remove_adapter(id)
            del self._requests[id]

    def _spare(self) -> bool:
        """Whether there is a slot without an adapter, or the one that vLLM would take is not needed now."""
        active = self._registry._active_adapters
        oldest = next((id for id in active.order if id not in active.pinned_items), None)
        return len(active) < self._registry.lora_slots or (oldest is not None and oldest not in self._used)

    def _is_pinned(self, id: int) -> bool:
        return id in self._registry._registered_adapters.pinned_items

    def _check(self, id: int) -> None:
        """Reads a slot back."""
        model = self._registry.get_adapter(id)
        if isinstance(model, SlotImage) and id in self._registry.lora_index_to_id:
            index = self._registry.lora_index_to_id.index(id)
            if name := model.differs(self._registry, index):
                raise Corrupt(f"slot {index}: '{name}' does not hold what was written into it")

    # ---- in the place of vLLM's ----

    def _load_adapter(self, request: Any) -> Any:
        model = self._load(request)
        if model is None:
            return self._theirs_load(request)
        self._requests[request.lora_int_id] = request
        return model

    def _use(self, requests: Any, mapping: Any) -> None:
        """Requests are equal to vLLM if their names are: of two versions of a name in one batch, it is given one."""
        if mapping is not None:
            self._used = {*mapping.index_mapping, *mapping.prompt_mapping}
            requests = [*requests, *(self._requests[id] for id in self._used if id in self._requests)]
        self._theirs_use(requests, mapping)

    def _add(self, model: Any) -> None:
        """There is nothing to cut or to scale of an image."""
        if isinstance(model, SlotImage):
            self._registry._registered_adapters[model.id] = model
        else:
            self._theirs_add(model)

    def _fill(self, id: int) -> Any:
        """vLLM picks the slot, and sets to zero what it finds no factors for: of an image, all."""
        filled = self._theirs_fill(id)
        model = self._registry.get_adapter(id)
        if filled and isinstance(model, SlotImage):
            model.write(self._registry, self._registry.lora_index_to_id.index(id))
        return filled

    def _clear(self) -> None:
        """vLLM drops all adapters when the base has changed. Those of Layercast stay, and so do their pins."""
        held = [id for id in self._registry.list_adapters() if id in self._requests]
        pinned = [id for id in held if self._is_pinned(id)]
        self._theirs_clear()
        if asleep():
            return  # slots are unmapped: the next request brings its adapter back
        for id in held:
            self._manager.add_adapter(self._requests[id])
        for id in pinned:
            self._registry.pin_adapter(id)
