"""LoRA adapters that a vLLM worker takes of publishers, in memory: requests name them as ``layercast://NAME``.

The factors are kept on the host, as vLLM keeps those of files, and vLLM's own code makes of them what it makes of a folder:
it checks, cuts, pads and scales them, and copies them into its stacked tensors. So bytes are those of its own load, for all
kinds of layers and of parallelism. What it lacks is added: a module that this model would not apply is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from layercast.errors import Error, FailedPrecondition, Internal, InvalidArgument, NotFound
from layercast.host.staging import named
from layercast.offered import FetchedAdapter, endpoints_of, fetch_adapter

PREFIX = "layercast://"


def path_of(name: str, digest: str = "") -> str:
    """The path that a request says. vLLM's prefix cache keys on it: with the digest, no version finds another's blocks."""
    return f"{PREFIX}{name}?{digest}" if digest else f"{PREFIX}{name}"


def name_in(path: str) -> str | None:
    """None: it is a path of vLLM's own."""
    return path.removeprefix(PREFIX).split("?")[0] if path.startswith(PREFIX) else None


@dataclass
class _Held:
    """An adapter that requests may name, and the ids by which they did."""

    adapter: FetchedAdapter
    ids: set[int] = field(default_factory=set)


class LoraAdapters:
    """One worker's. Its calls are made on vLLM's thread; only ``stage_adapter`` starts one of its own."""

    def __init__(self, worker: Any) -> None:
        manager = getattr(worker.model_runner, "lora_manager", None)
        if manager is None:
            raise FailedPrecondition("the engine has no memory for adapters: expected one that was started with --enable-lora")
        self._worker = worker
        self._stages: int = worker.parallel_config.pipeline_parallel_size
        self._manager = manager
        self._held: dict[str, _Held] = {}
        self._staged: FetchedAdapter | None = None
        self._state = "idle"
        self._error: Error | None = None
        self._attempt = 0  # what an earlier one brings is dropped
        self._of_files = manager._load_adapter
        manager._load_adapter = self._load_adapter  # of this manager alone

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

        ``stage_adapter`` (endpoint, lineage, step, adapter, timeout): starts to take an adapter, and returns at once.
        ``adapter_state``: where that is. ``commit_adapter`` (name): requests of that name mean what is staged, between two
        forward passes. ``abort_adapter``: drops it. ``unload_adapter`` (name): no request may name it any more.
        """
        OPS[op](self, **arguments)
        return self.status()

    def status(self) -> dict[str, Any]:
        error = {"code": self._error.code, "message": str(self._error)} if self._error else None
        held = {name: named(of.adapter.version) for name, of in sorted(self._held.items())}
        staged = named(self._staged.version) if self._staged else None
        return {"rank": self._worker.rank, "state": self._state, "error": error, "staged": staged, "adapters": held}

    def _stage(
        self,
        endpoint: str = "",
        lineage: str = "",
        step: int | None = None,
        adapter: str = "",
        timeout: float = 300.0,
    ) -> None:
        self._abort()
        publishers = endpoints_of(endpoint)
        if publishers == [""]:
            raise InvalidArgument("expected the endpoint of a publisher, got none")
        self._state = "staging"
        attempt = self._attempt

        def work() -> None:
            fetched: FetchedAdapter | None = None
            failed: Error | None = None
            try:
                fetched = fetch_adapter(publishers, name=adapter, lineage=lineage, step=step, timeout=timeout)
                self._check(fetched)
            except Error as error:
                failed = error
            except Exception as error:  # noqa: BLE001  it must reach whoever asks
                failed = Internal(repr(error))
            if self._attempt == attempt:
                self._staged, self._error = fetched, failed
                self._state = "failed" if failed else "staged"

        threading.Thread(target=work, name="layercast adapter", daemon=True).start()

    def _ask(self) -> None:
        """Only asks."""

    def _commit(self, name: str) -> None:
        if self._error is not None:
            raise self._error
        if self._staged is None:
            raise FailedPrecondition(f"expected an adapter that is staged, got the state '{self._state}'")
        self._check_base(self._staged)
        held = self._held.get(name)
        ids = held.ids if held is not None else set()
        models = {id: self._model(self._staged, id) for id in ids & self._manager.list_adapters()}
        self._held[name] = _Held(self._staged, ids)
        self._staged, self._state = None, "idle"
        for id, model in models.items():
            _replace(self._manager._adapter_manager, model)

    def _abort(self) -> None:
        self._attempt += 1
        self._staged, self._error, self._state = None, None, "idle"

    def _check_base(self, adapter: FetchedAdapter) -> None:
        """That the base is served on which it was trained, where both are known."""
        engine = getattr(self._worker, "weight_transfer_engine", None)
        served = getattr(engine, "version", None)
        if adapter.base is None or served is None or adapter.base.digest in ("", served.digest):
            return
        raise FailedPrecondition(
            f"adapter '{adapter.name}' of {adapter.version} was trained on the base {adapter.base}, and the engine serves "
            f"{served}"
        )

    def _unload(self, name: str) -> None:
        if name not in self._held:
            raise NotFound(f"no adapter '{name}': expected one of {', '.join(sorted(self._held)) or 'none'}")
        for id in self._held.pop(name).ids:
            self._manager.remove_adapter(id)

    def _load_adapter(self, request: Any) -> Any:
        """In place of the manager's method, which reads files: vLLM asks it whenever it does not hold an id."""
        name = name_in(request.lora_path)
        if name is None:
            return self._of_files(request)
        held = self._held.get(name)
        if held is None:
            from vllm.exceptions import LoRAAdapterNotFoundError

            raise LoRAAdapterNotFoundError(request.lora_name, request.lora_path)
        held.ids.add(request.lora_int_id)
        return self._model(held.adapter, request.lora_int_id)

    def _model(self, adapter: FetchedAdapter, id: int) -> Any:
        """vLLM's model of an adapter, in memory of its own: vLLM multiplies B by the scale, in place."""
        from vllm.lora.peft_helper import PEFTHelper

        manager = self._manager
        modules = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in adapter.tensors})
        config = {"target_modules": modules, **adapter.config}
        if manager.max_position_embeddings:
            config["vllm_max_position_embeddings"] = manager.max_position_embeddings
        try:
            helper = PEFTHelper.from_dict(config)
            helper.validate_legal(manager.lora_config)
        except (ValueError, TypeError) as error:
            raise InvalidArgument(f"adapter '{adapter.name}' of {adapter.version}: {error}") from error
        mapper = getattr(manager._adapter_manager.model, "hf_to_vllm_mapper", None)
        model = manager._lora_model_cls.from_lora_tensors(
            id,
            {name: tensor.clone() for name, tensor in adapter.tensors.items()},
            helper,
            device="cpu",
            dtype=manager.lora_config.lora_dtype,
            model_vocab_size=manager.vocab_size,
            weights_mapper=None if mapper is None else mapper.get_rename_mapper(),
            skip_prefixes=getattr(manager._adapter_manager.model, "lora_skip_prefixes", None),
        )
        manager._adapter_manager._validate_moe_lora_format(model)
        return model

    def _check(self, adapter: FetchedAdapter) -> None:
        """That this model applies every module: vLLM serves the base in place of one that it does not find."""
        model = self._model(adapter, 1)
        applied = self._manager._adapter_manager
        known = set(applied.modules) | {each for packed in applied.packed_modules.values() for each in packed}
        for module in model.loras:
            if module in known or ".experts" in module or self._stages > 1:
                continue  # experts' names are vLLM's own to read; other stages have other layers
            nearest = sorted(each for each in known if each.rpartition(".")[2] == module.rpartition(".")[2])
            raise InvalidArgument(
                f"adapter '{adapter.name}' of {adapter.version}: this engine applies no adapter to '{module}': expected a "
                f"module such as '{(nearest or sorted(known))[0]}'"
            )


def _replace(manager: Any, model: Any) -> None:
    """Puts a model in the place of the one that has its id: where that was active, into vLLM's stacked tensors."""
    active = model.id in manager._active_adapters
    manager.remove_adapter(model.id)
    manager.add_adapter(model)
    if active:
        manager.activate_adapter(model.id)


OPS: dict[str, Callable[..., None]] = {
    "stage_adapter": LoraAdapters._stage,
    "adapter_state": LoraAdapters._ask,
    "commit_adapter": LoraAdapters._commit,
    "abort_adapter": LoraAdapters._abort,
    "unload_adapter": LoraAdapters._unload,
}
