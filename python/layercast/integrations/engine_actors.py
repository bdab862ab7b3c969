"""vLLM engines within actors of Ray, as :class:`layercast.integrations.broadcast.Broadcast` has them take a version. Used
where a trainer owns its engines, and no server stands before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from layercast.errors import Error, Internal
from layercast.integrations.engines import slowest
from layercast.vllm.sync import Answers, Engine


class EngineActors:
    """Args:
    actors: of classes with a method ``layercast(op, arguments)``, which makes the step on every rank of their engine.
    get: what waits for an actor's answer; by default ``ray.get``.
    """

    def __init__(
        self, actors: Iterable[Any], *, timeout: float = 300.0, get: Callable[[Any], Any] | None = None
    ) -> None:
        self._timeout = timeout
        self._engines = [Engine(_caller(actor, get or _ray_get)) for actor in actors]

    def reload(self, source: list[str], all_or_none: bool) -> dict[str, float]:
        """All engines stage the version before the first one commits it. Raises the first failed engine's error."""
        endpoint = ",".join(source)
        if not all_or_none:
            return _costs(self._of_all(lambda engine: engine.reload(endpoint=endpoint, timeout=self._timeout)))
        try:
            self._of_all(lambda engine: engine.stage(endpoint=endpoint, timeout=self._timeout))
        except Error:
            for engine in self._engines:
                _try_to_abort(engine)
            raise
        return _costs(self._of_all(Engine.commit))

    def close(self) -> None:
        """Nothing: the engines are the trainer's."""

    def _of_all(self, ask: Callable[[Engine], Answers]) -> list[Answers]:
        """Returns once all have answered."""
        with ThreadPoolExecutor(len(self._engines)) as pool:
            asked = [pool.submit(ask, engine) for engine in self._engines]
        return [one.result() for one in asked]


def _caller(actor: Any, get: Callable[[Any], Any]) -> Callable[[str, dict[str, Any]], Answers]:
    def call(op: str, arguments: dict[str, Any]) -> Answers:
        try:
            answers: Answers = get(actor.layercast.remote(op, arguments))
            return answers
        except Error:
            raise
        except Exception as error:  # of Ray's, or what the actor raised
            raise Internal(f"an engine's actor: {type(error).__name__}: {error}") from error

    return call


def _ray_get(asked: Any) -> Any:
    import ray

    return ray.get(asked)


def _try_to_abort(engine: Engine) -> None:
    try:
        engine.abort()
    except Error:
        pass  # its next reload drops what is staged


def _costs(answers: Iterable[Answers]) -> dict[str, float]:
    return slowest([_cost(answer) for of_engine in answers for answer in of_engine])


def _cost(answer: dict[str, Any]) -> dict[str, float]:
    report = answer["report"]
    return {
        "layercast/version": float(answer["version"]["step"]),
        "layercast/reload_s": report["total_ms"] / 1e3,
        "layercast/commit_s": report["stage_ms"].get("commit", 0.0) / 1e3,
        "layercast/bytes": float(report["bytes"]),
    }
