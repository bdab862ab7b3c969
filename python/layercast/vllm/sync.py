"""One sync of one vLLM engine: a version is staged on all its ranks while they generate, then committed on all.

Whatever fails on any rank before the commit leaves the old version on all of them. The commit copies staged bytes and is
tried again where it fails, since what is staged stays; an engine in which it never succeeds is torn, and is not resumed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from layercast.errors import DeadlineExceeded, Error, FailedPrecondition, InvalidArgument, Unavailable, of_code

Answers = list[dict[str, Any]]

_COMMITS = 3
_FIRST_LOOK, _LONGEST_LOOK = 0.002, 0.05  # seconds between two questions whether the ranks have staged


class Torn(FailedPrecondition):
    """Some ranks serve one version and some another: whoever holds the engine still must go on doing so."""


class Engine:
    """Drives one engine. One sync at a time.

    Args:
        call: ``call(op, arguments)`` makes LayercastEngine.answer's step on every rank and returns all answers.
        still: ``still(mode)`` is entered around the commit: no forward pass runs in it that began before, sequences are
            treated as the mode says, and prefix caches are emptied when it is left. After Torn it stays still.
    """

    def __init__(
        self,
        call: Callable[[str, dict[str, Any]], Answers],
        still: Callable[[str], AbstractContextManager[None]] = lambda mode: nullcontext(),
    ) -> None:
        self._call = call
        self._still = still
        self._attempt = 0

    def reload(
        self,
        *,
        pause_mode: str = "",
        timeout: float = 300.0,
        adapters: dict[str, str] | None = None,
        numbers: dict[str, int] | None = None,
        then: Callable[[Answers], None] = lambda answers: None,
        **source: Any,
    ) -> Answers:
        """Stages and commits. Raises a subclass of :class:`layercast.Error`; ranks' answers otherwise.

        ``adapters``: of the version, what it calls each by what requests do, which are committed with the base: no forward
        pass is of one without the other. ``numbers``: as in :meth:`load_adapter`; ``then`` is called when requests may have
        them, while the engine stands still.
        """
        if not adapters:
            self.stage(timeout=timeout, **source)
            return self.commit(pause_mode=pause_mode)
        staged = self.stage_adapters(adapters, timeout=timeout, **source)[0]["staged"]
        version = next(iter(staged.values()))  # the newest may be another one by now

        def commit_adapters() -> None:
            then(self.commit_adapters(dict.fromkeys(adapters, 0) | (numbers or {}), follow=pause_mode == "keep"))

        try:
            self.stage(timeout=timeout, **source | {"lineage": version["lineage"], "step": version["step"]})
            return self.commit(pause_mode=pause_mode, together_with=commit_adapters)
        except (Error, KeyboardInterrupt):
            self._give_up("abort_adapter")
            raise

    def stage(self, *, timeout: float = 300.0, **source: Any) -> Answers:
        """``source``: endpoint, lineage, step. Returns once every rank has staged the version, checked and whole."""
        self._attempt = max(self._attempt + 1, time.time_ns() // 1_000_000)
        try:
            self._wait_until_staged(self._on_all("stage", attempt=self._attempt, **source), "state", timeout)
            self._on_all("prepare")
            return self._on_all("make")
        except (Error, KeyboardInterrupt):  # after anything else the engine may be dead, and would never answer
            self._give_up()
            raise

    def _wait_until_staged(self, answers: Answers, op: str, timeout: float) -> Answers:
        began, look = time.monotonic(), _FIRST_LOOK
        while any(answer["state"] == "staging" for answer in answers):
            if time.monotonic() - began > timeout:
                ranks = [answer["rank"] for answer in answers if answer["state"] == "staging"]
                raise DeadlineExceeded(f"ranks {ranks} have not staged the version after {timeout:g} s")
            time.sleep(look)
            look = min(look * 1.5, _LONGEST_LOOK)
            answers = self._on_all(op)
        return answers

    def commit(self, *, pause_mode: str = "", together_with: Callable[[], None] = lambda: None) -> Answers:
        """Writes what is staged, between two forward passes. Raises FailedPrecondition if nothing is. ``together_with``:
        what else has to change before the next one."""
        with self._still(pause_mode):
            for _ in range(_COMMITS):
                answers = self._call("commit", {"attempt": self._attempt})
                failed = [answer for answer in answers if answer.get("error")]
                if not failed:
                    _or_torn(together_with)
                    return answers
            if len(failed) < len(answers) or any(answer["torn"] for answer in answers):
                raise Torn(
                    f"{len(failed)} of {len(answers)} ranks could not commit, and the others have: "
                    f"the engine generates nothing until a reload succeeds; {_error_of(failed[0])}"
                )
        self._give_up()
        raise _error_of(failed[0])

    def abort(self) -> Answers:
        return self._on_all("abort")

    def status(self) -> Answers:
        return self._on_all("state")

    def verify(self, *, model: str = "") -> Answers:
        """Reads the served bytes back; with ``model``, answers have the ``differences`` from a cold load of it."""
        return self._on_all("verify", model=model)

    def load_adapter(
        self, *, name: str, adapter: str = "", number: int = 0, pause_mode: str = "", timeout: float = 300.0, **source: Any
    ) -> Answers:
        """Has requests for ``layercast://NAME`` mean an adapter of a publisher. ``source``: endpoint, lineage, step.

        ``adapter``: what the version calls it. ``number``: the id that requests for this version will have, by the path
        ``layercast://NAME?DIGEST``; those that mean an older one then end with it, and the engine never stands still. Only
        under the pause modes "keep" and "abort" it does, as in :meth:`commit`: they go on with the new version, or end.
        """
        self.stage_adapters({name: adapter}, timeout=timeout, **source)
        with self._still(pause_mode) if pause_mode in ("keep", "abort") else nullcontext():
            return self.commit_adapters({name: number}, follow=pause_mode == "keep")

    def stage_adapters(self, adapters: dict[str, str], *, timeout: float = 300.0, **source: Any) -> Answers:
        """``adapters``: what the version calls each, by what requests will. Returns once every rank has its part of all."""
        for name in adapters:
            require_name(name)
        try:
            answers = self._on_all("stage_adapter", adapters=adapters, timeout=timeout, **source)
            answers = self._wait_until_staged(answers, "adapter_state", timeout)
            if any(answer["staged"] != answers[0]["staged"] for answer in answers):
                raise Unavailable("ranks have staged different versions: the publisher has a newer one; say which step")
            _require_use(answers)
            return answers
        except (Error, KeyboardInterrupt):
            self._give_up("abort_adapter")
            raise

    def commit_adapters(self, numbers: dict[str, int], *, follow: bool = False) -> Answers:
        """Has requests mean what is staged. ``follow``: those under way too."""
        try:
            return self._on_some("commit_adapter", numbers=numbers, follow=follow)
        except (Error, KeyboardInterrupt):
            self._give_up("abort_adapter")
            raise

    def retire_adapter(self, name: str, digest: str) -> Answers:
        """No request means that version any more by the number that it was given."""
        return self._on_all("retire_adapter", name=name, digest=digest)

    def unload_adapter(self, *, name: str, pause_mode: str = "") -> Answers:
        """No request may name the adapter any more; one that did would end the engine: so none must be under way, as
        under the pause mode "abort" none is."""
        if pause_mode == "keep":
            raise InvalidArgument("pause_mode: expected wait or abort, since a sequence cannot go on without its adapter")
        with self._still(pause_mode) if pause_mode == "abort" else nullcontext():
            return self._on_some("unload_adapter", name=name)

    def adapters(self) -> Answers:
        return self._on_all("adapter_state")

    def _on_some(self, op: str, **arguments: Any) -> Answers:
        """Raises Torn if some ranks did it and some did not."""
        answers = self._call(op, arguments)
        failed = [answer for answer in answers if answer.get("error")]
        if failed and len(failed) < len(answers):
            raise Torn(f"{len(failed)} of {len(answers)} ranks failed: load the adapter again; {_error_of(failed[0])}")
        if failed:
            raise _error_of(failed[0])
        return answers

    def _on_all(self, op: str, **arguments: Any) -> Answers:
        answers = self._call(op, arguments)
        for answer in answers:
            if answer.get("error"):
                raise _error_of(answer)
        return answers

    def _give_up(self, op: str = "abort") -> None:
        try:
            self._call(op, {})
        except Exception:  # noqa: BLE001  the error that is being raised matters more
            pass


def _or_torn(step: Callable[[], None]) -> None:
    try:
        step()
    except Torn:
        raise
    except Error as error:
        raise Torn(f"the base is committed, and what belongs to it is not: reload them together; {error}") from error


def require_name(name: str) -> None:
    if not name or set(name) & set("/?"):
        raise InvalidArgument(f"name: expected one of an adapter, without '/' and '?', got '{name}'")


def _require_use(answers: Answers) -> None:
    """That every module of an adapter is one of some rank's: vLLM serves the base in place of one that it does not find.
    Ranks of other stages of a pipeline have other layers, and those of expert parallelism other experts."""
    for name in answers[0]["unused"]:
        unused = set.intersection(*(set(answer["unused"][name]) for answer in answers))
        if unused:
            raise InvalidArgument(
                f"adapter '{name}' of {answers[0]['staged'][name]}: this engine applies no adapter to '{min(unused)}'"
            )


def _error_of(answer: dict[str, Any]) -> Error:
    error = answer["error"]
    return of_code(error["code"])(f"rank {answer['rank']}: {error['message']}")


def of_llm(llm: Any) -> Engine:
    """The engine of a ``vllm.LLM``, which generates only within its own calls: nothing needs to stand still.

    Nothing keeps its caller from asking a torn engine, either: after :class:`Torn`, reload before you generate.
    """

    resources = getattr(llm.llm_engine.engine_core, "resources", None)  # none: the engine is in this process

    def is_dead() -> bool:
        return bool(getattr(resources, "engine_dead", False))

    def call(op: str, arguments: dict[str, Any]) -> Answers:
        asked = _on_a_thread(lambda: llm.collective_rpc("layercast", args=(op, arguments)))
        answers: Answers = answer_of(asked, is_dead)
        if op in ("commit", "commit_adapter", "unload_adapter"):
            llm.reset_prefix_cache()
        return answers

    return Engine(call)


def _on_a_thread(ask: Callable[[], Any]) -> Future[Any]:
    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001  it is raised where the answer is awaited
            answer.set_exception(error)

    threading.Thread(target=work, name="layercast call", daemon=True).start()
    return answer


def answer_of(asked: Future[Any], is_dead: Callable[[], bool]) -> Any:
    """The answer. vLLM never answers what an engine was asked that dies meanwhile: this raises Unavailable then."""
    while not asked.done() and not is_dead():
        wait([asked], _LONGEST_LOOK)
    if is_dead():
        asked.cancel()
        raise Unavailable("the engine has died, and has to be started again")
    return asked.result()
