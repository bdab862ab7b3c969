"""LoRA adapters that a vLLM worker takes of publishers, in memory: requests name them as ``layercast://NAME``, and one
version of them as ``layercast://NAME?DIGEST``.

Each rank takes its own part of the factors, by a plan that is written down of what vLLM's own code does (slot_plan.py). It
keeps that on the host, and writes it into whichever slots vLLM picks (lora_slots.py): bytes are those of vLLM's own load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from layercast.errors import FailedPrecondition, InvalidArgument, NotFound
from layercast.host.staging import named
from layercast.offered import OfferedAdapter, endpoints_of
from layercast.vllm.adapter_staging import AdapterStaging, HeldAdapter
from layercast.vllm.adapter_paths import path_of, version_in
from layercast.vllm.lora_slots import Slots


@dataclass
class _Name:
    """What requests may mean by a name: its newest version, or, by digest, one that servers hold for those under way."""

    newest: HeldAdapter
    versions: dict[str, HeldAdapter] = field(default_factory=dict)
    holders: Counter[str] = field(default_factory=Counter)  # by digest: how often it was given a number

    def meant(self, digest: str) -> HeldAdapter | None:
        return self.newest if digest in ("", _digest(self.newest)) else self.versions.get(digest)


class LoraAdapters:
    """One worker's. Its calls are made on vLLM's thread; only ``stage_adapter`` starts one of its own."""

    def __init__(self, worker: Any) -> None:
        manager = getattr(worker.model_runner, "lora_manager", None)
        if manager is None:
            raise FailedPrecondition(
                "the engine has no memory for adapters: expected one that was started with --enable-lora"
            )
        self._worker = worker
        self._names: dict[str, _Name] = {}
        self._staging = AdapterStaging(manager)
        self._slots = Slots(manager, self._meant)

    @staticmethod
    def of(worker: Any) -> LoraAdapters:
        """Those of this worker, from its first call on."""
        found = getattr(worker, "layercast_adapters", None)
        if found is None:
            found = worker.layercast_adapters = LoraAdapters(worker)
        adapters: LoraAdapters = found
        return adapters

    def answer(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Does one step, on every rank. Returns the rank's state.

        ``stage_adapter`` (endpoint, lineage, step, adapters, timeout): starts to take adapters of a version, and returns at
        once; ``adapters`` are the version's names by those of requests. ``adapter_state``: where that is, which has to be
        asked until it is done. ``commit_adapter`` (numbers, follow): requests mean what is staged, between two forward
        passes. A number is the id that requests for a name will have, which finds it in a slot; with ``follow``, ids that
        mean an older version do so too, as those without a digest do in any case. ``retire_adapter`` (name, digest): no
        request means that version any more by one of the numbers that it was given. ``abort_adapter``: drops what is staged.
        ``unload_adapter`` (name): no request may name it any more.
        """
        OPS[op](self, **arguments)
        return self.status()

    def status(self) -> dict[str, Any]:
        held = {name: named(of.newest.offered.version) for name, of in sorted(self._names.items())}
        return {"rank": self._worker.rank, **self._staging.status(), "adapters": held}

    def _stage(
        self,
        adapters: dict[str, str],
        endpoint: str = "",
        lineage: str = "",
        step: int | None = None,
        timeout: float = 300.0,
    ) -> None:
        publishers = endpoints_of(endpoint)
        if publishers == [""]:
            raise InvalidArgument("expected the endpoint of a publisher, got none")
        self._staging.start(adapters, {"endpoints": publishers, "lineage": lineage, "step": step, "timeout": timeout})

    def _ask(self) -> None:
        self._staging.look()

    def _commit(self, numbers: dict[str, int], follow: bool = False) -> None:
        staged = self._staging.require()
        for held in staged.values():
            self._check_base(held.offered)
        changed = {}  # ids that go on with another version, and its models: all that can fail comes first
        for name, held in staged.items():
            for id in self._following(name, follow):
                changed[id] = held.model(id)
        before = {name: self._ids_of(name) for name in staged}
        for name, held in staged.items():
            self._name(name, held, bool(numbers.get(name)), follow)
        self._staging.abort()
        for model in changed.values():
            self._slots.put(model)
        for name, number in numbers.items():
            if number:
                self._slots.offer(_request(name, number, staged[name].offered), before[name])

    def _name(self, name: str, held: HeldAdapter, numbered: bool, follow: bool) -> None:
        of = self._names.setdefault(name, _Name(held))
        of.newest = held
        if follow:
            of.versions = dict.fromkeys(of.versions, held)
        if numbered:
            of.versions[_digest(held)] = held
            of.holders[_digest(held)] += 1

    def _following(self, name: str, all_of_them: bool) -> set[int]:
        return self._ids_of(name) if all_of_them else self._slots.ids({path_of(name)})

    def _ids_of(self, name: str) -> set[int]:
        return self._slots.ids(self._paths_of(name)) if name in self._names else set()

    def _paths_of(self, name: str) -> set[str]:
        of = self._names[name]
        return {path_of(name), *(path_of(name, digest) for digest in (_digest(of.newest), *of.versions))}

    def _retire(self, name: str, digest: str) -> None:
        of = self._names.get(name)
        if of is None or digest not in of.versions:
            return
        of.holders[digest] -= 1
        if of.holders[digest] == 0 and digest != _digest(of.newest):
            del of.versions[digest], of.holders[digest]
            self._slots.drop({path_of(name, digest)})

    def _abort(self) -> None:
        self._staging.abort()

    def _unload(self, name: str) -> None:
        if name not in self._names:
            raise NotFound(f"no adapter '{name}': expected one of {', '.join(sorted(self._names)) or 'none'}")
        self._slots.drop(self._paths_of(name))
        del self._names[name]

    def _check_base(self, adapter: OfferedAdapter) -> None:
        """That the base is served on which it was trained, where both are known."""
        engine = getattr(self._worker, "weight_transfer_engine", None)
        served = getattr(engine, "version", None)
        if adapter.base is None or served is None or adapter.base.digest in ("", served.digest):
            return
        raise FailedPrecondition(
            f"adapter '{adapter.name}' of {adapter.version} was trained on the base {adapter.base}, and the engine serves "
            f"{served}"
        )

    def _meant(self, request: Any) -> Any:
        """What a request means: vLLM asks whenever it does not hold its id. None: a file of vLLM's own."""
        named = version_in(request.lora_path)
        if named is None:
            return None
        of = self._names.get(named[0])
        held = None if of is None else of.meant(named[1])
        if held is None:
            from vllm.exceptions import LoRAAdapterNotFoundError

            raise LoRAAdapterNotFoundError(request.lora_name, request.lora_path)
        return held.model(request.lora_int_id)


def _digest(held: HeldAdapter) -> str:
    return held.offered.version.digest


def _request(name: str, number: int, adapter: OfferedAdapter) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(name, number, path_of(name, adapter.version.digest))


OPS: dict[str, Callable[..., None]] = {
    "stage_adapter": LoraAdapters._stage,
    "adapter_state": LoraAdapters._ask,
    "commit_adapter": LoraAdapters._commit,
    "retire_adapter": LoraAdapters._retire,
    "abort_adapter": LoraAdapters._abort,
    "unload_adapter": LoraAdapters._unload,
}
