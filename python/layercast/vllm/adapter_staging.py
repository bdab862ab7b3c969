"""Adapters on their way into one worker, on a thread of its own, while the engine goes on generating."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass
from typing import Any

from layercast.errors import Cancelled, DeadlineExceeded, Error, FailedPrecondition, Internal, InvalidArgument
from layercast.host.staging import named
from layercast.offered import FetchedAdapter, OfferedAdapter, find_adapter
from layercast.vllm.adapter_reading import AdapterReading
from layercast.vllm.slot_image import SlotImage, take_images
from layercast.vllm.slot_plan import SlotPlan, Tensors, plan_slot


@dataclass(frozen=True)
class HeldAdapter:
    """A version of an adapter on the host: this rank's part of it as it lies in a slot, or, where vLLM does more than to
    copy, its factors whole. ``unused``: modules of which this rank has nothing."""

    offered: OfferedAdapter
    reading: AdapterReading
    unused: frozenset[str]
    images: tuple[SlotPlan, Tensors] | None
    whole: FetchedAdapter | None = None

    def model(self, id: int) -> Any:
        """vLLM's model of it."""
        if self.images is not None:
            return SlotImage(id, *self.images)
        assert self.whole is not None
        factors = {name: tensor.clone() for name, tensor in self.whole.tensors.items()}  # vLLM scales B where it lies
        return self.reading.model(id, factors)


class AdapterStaging:
    """``state`` is ``idle``, ``staging``, ``staged`` or ``failed``. Every call is made on vLLM's thread, between two
    forward passes; plans are made by :meth:`look`, since that is when vLLM's layers may be changed."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._plans: dict[str, SlotPlan | None] = {}  # by what an adapter's form is
        self._run: _Run | None = None

    def start(self, adapters: dict[str, str], which: dict[str, Any]) -> None:
        """``adapters``: what the version calls each, by what requests will. ``which``: as find_adapter. Returns at once."""
        self.abort()
        self._run = _Run(adapters, which, self._manager, self._plans)
        threading.Thread(target=self._run.work, name="layercast adapter", daemon=True).start()

    def look(self) -> None:
        """Makes the plan that is waited for, if one is."""
        if self._run is not None:
            self._run.plan()

    def require(self) -> dict[str, HeldAdapter]:
        """What is staged. Raises what staging raised, and FailedPrecondition without any."""
        if self._run is not None and self._run.error is not None:
            raise self._run.error
        if self.state != "staged" or self._run is None:
            raise FailedPrecondition(f"expected an adapter that is staged, got the state '{self.state}'")
        return self._run.held

    def abort(self) -> None:
        """Drops what is staged, or on its way, and after a commit says so."""
        if self._run is not None:
            self._run.give_up()
        self._run = None

    @property
    def state(self) -> str:
        return "idle" if self._run is None else self._run.state

    def status(self) -> dict[str, Any]:
        run = self._run
        error = None if run is None or run.error is None else {"code": run.error.code, "message": str(run.error)}
        held = {} if run is None or run.state != "staged" else run.held
        staged = {name: named(each.offered.version) for name, each in sorted(held.items())}
        unused = {name: sorted(each.unused) for name, each in held.items()}
        return {"state": self.state, "error": error, "staged": staged, "unused": unused}


class _Run:
    """One staging, which is dropped whole. ``state``, ``error`` and ``held`` are set by its thread alone."""

    def __init__(
        self, adapters: dict[str, str], which: dict[str, Any], manager: Any, plans: dict[str, SlotPlan | None]
    ) -> None:
        self.state = "staging"
        self.error: Error | None = None
        self.held: dict[str, HeldAdapter] = {}
        self._adapters, self._which, self._manager, self._plans = adapters, which, manager, plans
        self._wanted: tuple[Callable[[], SlotPlan | None], Future[SlotPlan | None]] | None = None
        self._given_up = False

    def work(self) -> None:
        try:
            for name, theirs in self._adapters.items():
                self.held[name] = self._take(find_adapter(name=theirs, **self._which))
            self.state = "staged"
        except Error as error:
            self.error, self.state = error, "failed"
        except Exception as error:  # noqa: BLE001  it must reach whoever asks
            self.error, self.state = Internal(repr(error)), "failed"

    def plan(self) -> None:
        if self._wanted is None:
            return
        make, answer = self._wanted
        self._wanted = None
        try:
            answer.set_result(make())
        except Exception as error:  # noqa: BLE001  of vLLM's code: it is raised where the plan is awaited
            answer.set_exception(error)

    def give_up(self) -> None:
        self._given_up = True
        if self._wanted is not None:
            self._wanted[1].set_exception(Cancelled("the staging was given up"))

    def _take(self, offered: OfferedAdapter) -> HeldAdapter:
        reading = AdapterReading(self._manager, offered)
        form = json.dumps([offered.config, [[spec.name, spec.dtype, spec.shape] for spec in reading.factors]])
        if form not in self._plans:
            while len(self._plans) >= _PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[form] = self._planned(reading)
        plan = self._plans[form]
        if plan is None:
            return HeldAdapter(offered, reading, self._unknown(reading), None, offered.fetch())
        used = (spec.name for spec in reading.factors if spec.name not in plan.unused)
        unused = {*map(reading.module_of, plan.unused)}.difference(map(reading.module_of, used))
        return HeldAdapter(offered, reading, frozenset(unused), (plan, take_images(offered, plan)))

    def _planned(self, reading: AdapterReading) -> SlotPlan | None:
        registry = self._manager._adapter_manager

        def read(factors: Tensors) -> Any:
            return reading.model(1, factors, "meta")

        def make() -> SlotPlan | None:
            try:
                return plan_slot(registry, reading.factors, read, reading.scales())
            except (AssertionError, RuntimeError, ValueError) as error:  # of vLLM's layers, for instance by their shapes
                raise error if isinstance(error, Error) else InvalidArgument(f"{reading.called}: {error!r}") from error

        answer: Future[SlotPlan | None] = Future()
        self._wanted = make, answer
        if self._given_up:
            raise Cancelled("the staging was given up")
        try:
            return answer.result(self._which["timeout"])
        except NoAnswer:
            raise DeadlineExceeded(f"nobody asked for the adapter's state for {self._which['timeout']:g} s") from None

    def _unknown(self, reading: AdapterReading) -> frozenset[str]:
        """Modules that vLLM's registry does not know here, by name alone."""
        registry = self._manager._adapter_manager
        known = set(registry.modules) | {each for packed in registry.packed_modules.values() for each in packed}
        modules = map(reading.module_of, (spec.name for spec in reading.factors))
        return frozenset(module for module in modules if module not in known and ".experts" not in module)


_PLANS = 4  # forms of adapters that are known at a time
