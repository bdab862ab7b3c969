"""The engines of a run, as trainers ask them: all take a version, and each answers a share of the prompts. What the
integrations share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence as AbstractSequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from layercast.closing import OfOneProcess
from layercast.control.outcomes import EngineOutcome
from layercast.controller import Controller, Sequence
from layercast.errors import FailedPrecondition, InvalidArgument
from layercast.publisher import Published

#: Names of sampling options in trainers' configurations, for :func:`sampling`.
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class Engines(OfOneProcess):
    """Engines that reload and answer at the same time. One thread reloads, one generates.

    Args:
        endpoints: as :class:`layercast.Controller` takes them; only engines of ``layercast serve`` generate.
        timeout: seconds that a call may take.
    """

    def __init__(self, endpoints: str | Iterable[str], *, timeout: float = 300.0, api_key: str = "") -> None:
        self._all = Controller(endpoints, api_key=api_key)
        self._each = [Controller(endpoint, api_key=api_key) for endpoint in self._all.endpoints]
        self._timeout = timeout

    @property
    def endpoints(self) -> list[str]:
        return self._all.endpoints

    def check_reachable(self) -> None:
        """Raises Unavailable for an engine that does not answer within seconds."""
        for engine in range(len(self._each)):
            self._all.status(engine)

    def reload(self, source: Published | Iterable[str], all_or_none: bool) -> dict[str, float]:
        """Has all engines take a version; returns what it cost. Raises as :meth:`layercast.Controller.reload`."""
        return costs(self._all.reload(source, all_or_none=all_or_none, timeout=self._timeout))

    def generate(
        self, prompts: AbstractSequence[AbstractSequence[int]], *, seed: int, **sampling: Any
    ) -> list[Sequence]:
        """A sequence for each prompt of token ids, in order. Prompt ``i`` has the seed ``seed + i``, whoever answers.

        Raises as :meth:`layercast.Controller.generate`, and FailedPrecondition where a commit has aborted a sequence.
        """
        share = -(-len(prompts) // len(self._each)) or 1

        def ask(index: int) -> list[Sequence]:
            engine, mine = self._each[index], prompts[index * share : (index + 1) * share]
            if not mine:
                return []
            answers = engine.generate(mine, seed=seed + index * share, timeout=self._timeout, **sampling)
            if any(answer.finish == "aborted" for answer in answers):
                raise FailedPrecondition(f"engine {engine.endpoints[0]}: expected pause mode wait or keep, got abort")
            return answers

        with ThreadPoolExecutor(len(self._each)) as pool:
            try:
                return list(itertools.chain.from_iterable(pool.map(ask, range(len(self._each)))))
            except BaseException:
                self.cancel_generating()
                raise

    def cancel_generating(self) -> None:
        """Ends the call of :meth:`generate` that is under way; from any thread."""
        for engine in self._each:
            engine.cancel()

    def close(self) -> None:
        for controller in (self._all, *self._each):
            controller.close()


def costs(outcomes: Iterable[EngineOutcome]) -> dict[str, float]:
    """Of a reload: ``layercast/version`` (its step), ``reload_s``, ``commit_s``, ``bytes``, as :func:`slowest` says."""
    return slowest([_cost(outcome) for outcome in outcomes])


def slowest(costs: AbstractSequence[dict[str, float]]) -> dict[str, float]:
    """Of several engines: the most seconds, the oldest version, all bytes."""
    how: dict[str, Callable[[list[float]], float]] = {"layercast/version": min, "layercast/bytes": sum}
    names = dict.fromkeys(itertools.chain.from_iterable(costs))
    return {name: how.get(name, max)([cost[name] for cost in costs if name in cost]) for name in names}


def _cost(outcome: EngineOutcome) -> dict[str, float]:
    if outcome.version is None or outcome.report is None:
        return {}
    report = outcome.report
    return {
        "layercast/version": float(outcome.version.step),
        "layercast/reload_s": report.total_ms / 1e3,
        "layercast/commit_s": report.stage_ms.get("commit", 0.0) / 1e3,
        "layercast/bytes": float(report.bytes),
    }


def version_of(sequence: Sequence) -> int:
    """The step of the version that an answer came from; of an answer in which a commit fell (``keep``), the oldest."""
    return min(version.step for _, _, version in sequence.spans)


def sampling(options: Mapping[str, Any], eos: int | None) -> dict[str, Any]:
    """Of a trainer's :data:`SAMPLING` and ``max_completion_length``, what engines are told.

    All other options must be off. Raises InvalidArgument for one that is not: engines do not have it.
    """
    ours = {"max_completion_length": "max_new", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
    for name in options.keys() - ours:
        if options[name] not in (None, {}, 1.0 if name == "repetition_penalty" else 0.0):
            raise InvalidArgument(f"{name}: expected none, which engines do not have, got {options[name]!r}")
    told = {theirs: options[name] for name, theirs in ours.items()}
    told["top_k"] = max(told["top_k"] or 0, 0)
    return told if eos is None else {**told, "stop_tokens": [eos]}


def token_ids(tokenizer: Any, prompts: AbstractSequence[Any], **template: Any) -> list[list[int]]:
    """Of prompts that are texts, or conversations, which a chat template renders."""
    if isinstance(prompts[0], str):
        return [list(ids) for ids in tokenizer(text=list(prompts))["input_ids"]]
    rendered = tokenizer.apply_chat_template(
        list(prompts), add_generation_prompt=True, tokenize=True, return_dict=True, **template
    )
    return [list(ids) for ids in rendered["input_ids"]]
