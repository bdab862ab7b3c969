"""The registry of a run on Ray: an actor that knows the run's engines, and where its newest version is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from layercast._native import Version
from layercast.errors import DeadlineExceeded, FailedPrecondition, NotFound, Unavailable

_SECONDS = 60.0  # for an answer, which needs no waiting
_KEPT = 4  # versions that are remembered; publishers keep fewer


@dataclass(frozen=True, slots=True)
class Offer:
    """A version that every rank of the trainer has published: ``parts`` are the ranks' endpoints and versions."""

    version: Version
    parts: tuple[tuple[str, Version], ...]

    @property
    def endpoints(self) -> list[str]:
        return [endpoint for endpoint, _ in self.parts]


class WeightSync:
    """One for each run, a named actor: ``with layercast.ray.run("run-17")``. Calls are short; it waits for nobody."""

    def __init__(self) -> None:
        self._engines: dict[str, str] = {}
        self._parts: dict[int, dict[int, tuple[str, Version] | None]] = {}
        self._ranks: dict[int, int] = {}

    def engine_at(self, name: str, endpoint: str) -> None:
        self._engines[name] = endpoint

    def engine_left(self, name: str) -> None:
        self._engines.pop(name, None)

    def engines(self) -> dict[str, str]:
        """Endpoints by the names of actors."""
        return dict(self._engines)

    def publisher_started(self, rank: int) -> None:
        """A rank begins anew: nobody can take what it has published before."""
        for parts in self._parts.values():
            parts.pop(rank, None)

    def published(self, step: int, rank: int, ranks: int, part: tuple[str, Version] | None) -> None:
        """``part``: endpoint and version; None of a rank that holds nothing of the model."""
        self._parts.setdefault(step, {})[rank] = part
        self._ranks[step] = ranks
        for old in sorted(self._parts)[:-_KEPT]:
            del self._parts[old], self._ranks[old]

    def newest(self) -> Offer | None:
        """The newest version that all ranks have published, if there is one."""
        whole = [step for step, parts in self._parts.items() if len(parts) == self._ranks[step]]
        return self._offer(max(whole)) if whole else None

    def version(self, step: int) -> Offer:
        """Raises NotFound for a version that some rank has not published."""
        there, ranks = len(self._parts.get(step, {})), self._ranks.get(step)
        if there != ranks:
            known = sorted(self._parts)
            raise NotFound(f"version {step}: expected parts of {ranks or 'all'} ranks, got {there}; known are {known}")
        return self._offer(step)

    def _offer(self, step: int) -> Offer:
        parts = tuple(part for _, part in sorted(self._parts[step].items()) if part is not None)
        return Offer(Version(parts[0][1].lineage, step), parts)


@contextmanager
def run(name: str) -> Iterator[Any]:
    """The registry of a run on this node, while the ``with`` lasts; yields the actor. Raises ValueError for a name that is
    taken."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(WeightSync).options(name=name, num_cpus=0, scheduling_strategy=here).remote()
    try:
        yield actor
    finally:
        ray.kill(actor)


class Registry:
    """Asks the registry of a run. Raises NotFound if there is none, DeadlineExceeded if it does not answer."""

    def __init__(self, run: str) -> None:
        import ray

        self.run = run
        try:
            self._actor = ray.get_actor(run)
        except ValueError:
            raise NotFound(f"run '{run}': expected its registry, which layercast.ray.run makes, got none") from None

    def ask(self, what: str, *arguments: Any) -> Any:
        import ray

        try:
            return ray.get(getattr(self._actor, what).remote(*arguments), timeout=_SECONDS)
        except ray.exceptions.GetTimeoutError:
            raise DeadlineExceeded(f"run '{self.run}': its registry did not answer {what} in {_SECONDS:g} s") from None
        except ray.exceptions.RayActorError as error:
            raise Unavailable(f"run '{self.run}': its registry has ended: {error}") from None


def bind_address(secret: str, insecure: bool) -> str:
    """Where this actor's endpoints are bound: the node's address, or loopback where everything is on one node.

    Raises FailedPrecondition where there are more nodes, and no secret by which peers know each other.
    """
    import ray

    if secret or insecure:
        address = ray.util.get_node_ip_address()
        return f"tcp://[{address}]:0" if ":" in address else f"tcp://{address}:0"
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    if nodes > 1:
        raise FailedPrecondition(f"secret: expected one, or insecure=True, in a cluster of {nodes} nodes, got neither")
    return "tcp://127.0.0.1:0"
