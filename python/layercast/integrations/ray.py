"""Ray: trainers and engines as actors. One that Ray restarts joins its run by itself, with the newest version::

    with layercast.ray.run("run-17"):
        Engine = ray.remote(max_restarts=8, max_task_retries=8, max_concurrency=4)(layercast.ray.EngineActor)
        engine = Engine.options(name="engine-0").remote("run-17", folder, ["--quantization", "fp8_per_channel"])
        ray.get(trainer.publish.remote(policy, step=step))  # the trainer is a PublisherActor
        metrics = layercast.ray.reload("run-17", step)
        answers = ray.get(engine.generate.remote(prompts, max_new=64, temperature=1.0))
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence as AbstractSequence
from typing import Any

from layercast.controller import Controller, Sequence
from layercast.errors import DeadlineExceeded, Error, FailedPrecondition, InvalidArgument, NotFound
from layercast.integrations.engines import costs, slowest
from layercast.integrations.ray_publisher import PublisherActor
from layercast.integrations.ray_registry import Offer, Registry, WeightSync, bind_address, run
from layercast.integrations.served import ServedEngine

__all__ = ["EngineActor", "Offer", "PublisherActor", "WeightSync", "reload", "run"]


class EngineActor:
    """An engine of ``layercast serve``, whose ranks are processes of this actor and end with it. Calls may overlap.

    Made, and made again by Ray, it joins its run and takes the newest version. If its engine ends, the next call starts
    another one in the same way.

    Args:
        run: the name of its registry. model: the folder of the checkpoint that it starts from.
        options: more of ``layercast serve``, as ``["--tp", "2"]``.
        secret: a file that ``layercast keygen --secret`` made, the same on all nodes: serves at the node's address, to
            whoever has it. insecure: at the node's address, to anybody.
        timeout: seconds for its start, for a reload, and for a call of ``generate``.

    Raises NotFound (no such run), InvalidArgument (an actor without a name), and what the program says.
    """

    def __init__(
        self,
        run: str,
        model: str,
        options: AbstractSequence[str] = (),
        *,
        secret: str = "",
        insecure: bool = False,
        timeout: float = 300.0,
    ) -> None:
        import ray

        self._registry, self._model, self._timeout = Registry(run), model, timeout
        self._name = ray.get_runtime_context().get_actor_name()
        if not self._name:
            raise InvalidArgument(f"run '{run}': expected the engine's actor to have a name, got none")
        keys = ["--secret", secret] if secret else ["--insecure"] if insecure else []
        self._keys: dict[str, Any] = {"secret": secret, "insecure": insecure}
        self._options = ["--bind", bind_address(secret, insecure), *keys, *options]
        self._lock, self._left = threading.Lock(), False
        self._join()

    def endpoint(self) -> str:
        """Where the engine is reached, by a Controller too. Raises FailedPrecondition after :meth:`leave`."""
        if not self._served.alive:
            with self._lock:
                if self._left:
                    raise FailedPrecondition(f"engine '{self._name}' has left run '{self._registry.run}'")
                if not self._served.alive:
                    self._join()
        return self._served.endpoint

    def reload(self, step: int) -> dict[str, float]:
        """Takes the version of a step, if it does not serve it. Raises NotFound for one that is not published."""
        self.endpoint()
        with self._lock:
            return self._take(self._registry.ask("version", step), self._served)

    def generate(self, prompts: AbstractSequence[AbstractSequence[int]], **sampling: Any) -> list[Sequence]:
        """As :meth:`layercast.Controller.generate`."""
        with Controller(self.endpoint(), **self._keys) as engine:
            return engine.generate(prompts, timeout=self._timeout, **sampling)

    def status(self) -> dict[str, Any]:
        with Controller(self.endpoint(), **self._keys) as engine:
            return engine.status()

    def leave(self) -> None:
        """Leaves the run, and ends the engine: then the actor may be killed."""
        self._left = True
        self._registry.ask("engine_left", self._name)
        self._served.close()

    def _join(self) -> None:
        served = ServedEngine(self._model, self._options, timeout=self._timeout)
        self._taken: Offer | None = None
        self._registry.ask("engine_at", self._name, served.endpoint)  # before it takes: later versions are told to it
        newest = self._registry.ask("newest")
        try:
            if newest is not None:
                self._take(newest, served)
        except Error as error:  # its trainer may have ended too, and will publish again
            logging.getLogger("layercast").warning("engine '%s' serves its checkpoint: %s", self._name, error)
        self._served = served  # only now: it may be asked

    def _take(self, offer: Offer, served: ServedEngine) -> dict[str, float]:
        if offer != self._taken:
            with Controller(served.endpoint, **self._keys) as engine:
                self._costs = costs(engine.reload(offer.endpoints, version=offer.version, timeout=self._timeout))
            self._taken = offer
        return self._costs


def reload(run: str, step: int, *, timeout: float = 300.0) -> dict[str, float]:
    """Has all engines of a run take a version; returns what the slowest took, and the number of ``engines``.

    Engines that have ended for good leave the run. Raises the first error of another one, NotFound if none is left, and
    DeadlineExceeded after ``timeout`` seconds.
    """
    import ray

    registry, found = Registry(run), []
    calls = {}
    for name in registry.ask("engines"):
        try:
            calls[name] = ray.get_actor(name).reload.remote(step)
        except ValueError:
            registry.ask("engine_left", name)
    ray.wait(list(calls.values()), num_returns=len(calls), timeout=timeout)
    for name, call in calls.items():
        try:
            found.append(ray.get(call, timeout=0))
        except ray.exceptions.GetTimeoutError:
            raise DeadlineExceeded(f"engine '{name}' has not taken version {step} in {timeout:g} s") from None
        except ray.exceptions.RayActorError:
            registry.ask("engine_left", name)
    if not found:
        raise NotFound(f"run '{run}': expected engines, got none")
    return slowest(found) | {"layercast/engines": float(len(found))}
