"""Drives the engines of a run: tells them to take a version, and asks them for rollouts."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence as AbstractSequence
from dataclasses import dataclass
from typing import Any

from layercast import _native, logs
from layercast._asynchronous import in_thread
from layercast._native import Version
from layercast.checkpoint import Store
from layercast.closing import OfOneProcess
from layercast.control.canary import Canary
from layercast.control.outcomes import EngineOutcome, checked, outcome
from layercast.control.readiness import wait_until_ready
from layercast.errors import InvalidArgument, Unsupported
from layercast.http.http_engines import HttpEngines, is_http
from layercast.progress import Progress, Told
from layercast.publisher import Published, Publisher


class Span(tuple[int, int, Version]):
    """``(start, end, version)``: which version of the base tokens ``[start, end)`` came from. ``adapter`` is the version of
    the sequence's LoRA adapter, None if it has none."""

    adapter: Version | None = None


@dataclass(frozen=True, slots=True)
class Sequence:
    """A generated sequence, without its prompt.

    ``logprobs`` are natural logarithms at temperature 1; ``finish`` is "length", "stop" or "aborted".
    """

    tokens: list[int]
    logprobs: list[float]
    finish: str
    spans: list[Span]


class Controller(OfOneProcess):
    """Calls engines, which ``layercast serve`` runs, or vLLM servers. A call goes to all at the same time. One thread only.

    Args:
        engines: their endpoints, or one: ``tcp://`` of ``layercast serve``, or ``http://`` of vLLM with Layercast's door
            (docs/vllm.md), which take whole versions of publishers and generate by their own API.
        api_key: of vLLM servers that were started with one.
        keys: a folder of ``layercast keygen``, by which engines admit this controller. By default that of
            ``LAYERCAST_KEYS``.
        secret: instead of it, a file that all processes of a job have. By default that of ``LAYERCAST_SECRET``.
        insecure: no keys, whatever the environment says.

    Raises InvalidArgument if there is none, one is named twice, or there are some of both kinds.
    """

    def __init__(
        self,
        engines: str | Iterable[str],
        *,
        api_key: str = "",
        keys: str | os.PathLike[str] = "",
        secret: str | os.PathLike[str] = "",
        insecure: bool = False,
    ) -> None:
        logs.start()
        endpoints = [engines] if isinstance(engines, str) else list(engines)
        over_http = list(filter(is_http, endpoints))
        if over_http and len(over_http) < len(endpoints):
            raise InvalidArgument(f"expected engines of one kind, tcp:// or http://, got {', '.join(endpoints)}")
        if over_http and (keys or secret):
            raise InvalidArgument("keys are for engines of `layercast serve`: servers over http have an api_key")
        by: dict[str, Any] = {"keys": os.fspath(keys), "secret": os.fspath(secret), "insecure": insecure}
        self._native = HttpEngines(endpoints, api_key) if over_http else _native.Controller(endpoints, **by)

    @property
    def endpoints(self) -> list[str]:
        return self._native.endpoints

    def reload(
        self,
        source: Publisher | Published | Store | str | os.PathLike[str] | Iterable[str] | None = None,
        *,
        version: Version | None = None,
        all_or_none: bool = False,
        channel: str = "",
        pause_mode: str = "",
        partial: bool = False,
        may_keep: Iterable[str] = (),
        allow_config_change: bool = False,
        clean: bool = False,
        adapters: Iterable[str] = (),
        keep_adapters: bool = False,
        load_format: str = "auto",
        timeout: float = 300.0,
        check: bool = True,
        on_progress: Callable[[Progress], None] | None = None,
        progress_bar: bool = False,
        trace: str | os.PathLike[str] = "",
        traceparent: str = "",
    ) -> list[EngineOutcome]:
        """Tells all engines to take a version; returns an outcome for each, in the order of the endpoints.

        Args:
            source: a publisher, what its ``publish`` returned (then exactly that version), endpoints of all ranks of a
                sharded trainer, a :class:`Store` or the path of a checkpoint that the engines can read. None: each engine
                re-reads the last whole checkpoint that it loaded.
            version: which of the publisher's, or the store's; by default the newest.
            all_or_none: either all engines commit the version, or none does.
            adapters: of a publisher's version, the LoRA adapters that are committed with the base, in one moment, under
                the names that they have in it; ``["*"]``: all of them.
            clean: without the noise that the version carries.
            keep_adapters: a base is taken that an adapter which stays says it was not trained on.
            check: raises if an engine failed; ``error.outcomes`` has all outcomes. False: outcomes have the errors.
            on_progress: called on this thread while the reload is under way.
            progress_bar: shows one, if the package tqdm is installed.
            trace: a file that a timeline of the reload is written to, for Perfetto or Chrome.
            traceparent: W3C's: which span of a caller's trace the reload is a part of.

        Raises the first failed engine's error.
        """
        options: dict[str, Any] = {"all_or_none": all_or_none, "channel": channel, "pause_mode": pause_mode}
        options |= {"partial": partial, "may_keep": list(may_keep), "allow_config_change": allow_config_change}
        options |= {"adapters": list(adapters), "keep_adapters": keep_adapters, "clean": clean}
        options |= {"load_format": load_format, "timeout": timeout, **_source_options(source)}
        if version is not None:
            options["version"] = version
        if trace or traceparent:
            options |= {"trace": os.fspath(trace), "traceparent": traceparent}
        with Told(on_progress, progress_bar) as tell:
            outcomes = [outcome(native) for native in self._native.reload(tell, **options)]
        return checked(outcomes) if check else outcomes

    def roll_back(
        self,
        *,
        all_or_none: bool = False,
        pause_mode: str = "",
        keep_adapters: bool = False,
        timeout: float = 300.0,
        check: bool = True,
    ) -> list[EngineOutcome]:
        """Has all engines serve again what they served before, without any publisher (``serve --keep-previous``).

        Returns and raises as :meth:`reload`.
        """
        options: dict[str, Any] = {"previous": True, "all_or_none": all_or_none, "pause_mode": pause_mode}
        options |= {"keep_adapters": keep_adapters, "timeout": timeout}
        with Told(None, False) as tell:
            outcomes = [outcome(native) for native in self._native.reload(tell, **options)]
        return checked(outcomes) if check else outcomes

    def canary(
        self,
        source: Publisher | Published | str | os.PathLike[str] | Iterable[str] | None = None,
        *,
        canaries: str | Iterable[str],
        version: Version | None = None,
        trial: float = 300.0,
        timeout: float = 300.0,
        **options: Any,
    ) -> Canary:
        """Has some of the engines take a version on trial, and returns what promotes it on all others, or rolls it back::

            with controller.canary(publisher, canaries="tcp://engine-0:7800") as canary:
                if good(canary.version):
                    canary.promote()

        Args:
            source: as of :meth:`reload`, also ``version`` and the further ``options``. A publisher keeps the version
                meanwhile.
            canaries: some of the endpoints. Each needs a way back to what it serves: ``serve --keep-previous``, or the
                publisher that keeps it still.
            trial: seconds until a canary goes back by itself, if nobody has decided.

        Raises FailedPrecondition, naming the engine, if one has no way back, or if the others could not take the version
        all or none; and the error of a canary that failed. All engines serve then what they did.
        """
        if isinstance(self._native, HttpEngines):
            raise Unsupported("canary: a vLLM server keeps no version to go back to")
        options |= {"timeout": float(timeout), **_source_options(source)}
        options["canaries"] = [canaries] if isinstance(canaries, str) else list(canaries)
        options["trial"] = float(trial)
        if version is not None:
            options["version"] = version
        return Canary(_native.Canary(self._native, **options))

    def load_adapter(
        self,
        name: str,
        *,
        path: str | os.PathLike[str] | None = None,
        publisher: Publisher | Published | str | Iterable[str] | None = None,
        version: Version | None = None,
        adapter: str = "",
        pin: bool = False,
        all_or_none: bool = False,
        timeout: float = 300.0,
        check: bool = True,
    ) -> list[EngineOutcome]:
        """Loads a LoRA adapter on all engines under a name, or a new version of the one that has that name.

        Sequences that use the old version end with it; engines do not stand still. They have memory for so many adapters
        as ``serve --adapter-slots`` says, one of which a new version takes beside the old one.

        Args:
            path: a PEFT folder that the engines can read.
            publisher: in its place, a publisher, what its ``publish_adapters`` returned (then exactly that version), or
                the endpoints of all ranks of a sharded trainer.
            adapter: what the version calls it; "": the only one that the version has.
            pin: it is never evicted for another one.
            all_or_none: either all engines load it, or none does.
            check: raises if an engine failed; ``error.outcomes`` has all outcomes. False: outcomes have the errors.

        Outcomes' versions are the adapter's. Raises the first failed engine's error.
        """
        if (path is None) == (publisher is None):
            got = "neither" if path is None else "both"
            raise InvalidArgument(f"an adapter: expected a folder (path) or a publisher, got {got}")
        options: dict[str, Any] = {"adapter": adapter, "pin": pin, "all_or_none": all_or_none, "timeout": float(timeout)}
        if path is not None:
            options["path"] = os.path.abspath(path)
        else:
            options |= _source_options(publisher)
        if version is not None:
            options["version"] = version
        outcomes = [outcome(native) for native in self._native.load_adapter(name, **options)]
        return checked(outcomes) if check else outcomes

    def unload_adapter(self, name: str, *, check: bool = True) -> list[EngineOutcome]:
        """Takes a name away on all engines: new requests for it are refused, and its sequences end with the adapter."""
        outcomes = [outcome(native) for native in self._native.unload_adapter(name)]
        return checked(outcomes) if check else outcomes

    def pin_adapter(self, name: str, pin: bool = True, *, check: bool = True) -> list[EngineOutcome]:
        """Exempts an adapter from eviction on all engines; with ``pin=False``, no longer."""
        outcomes = [outcome(native) for native in self._native.pin_adapter(name, pin)]
        return checked(outcomes) if check else outcomes

    def list_adapters(self, engine: int = 0) -> dict[str, Any]:
        """The adapters of one engine (docs/cli.md)."""
        answer: dict[str, Any] = json.loads(self._native.list_adapters(engine))
        return answer

    async def load_adapter_async(self, name: str, **options: Any) -> list[EngineOutcome]:
        """:meth:`load_adapter` on a thread, for asyncio. Cancelling the task gives the call up."""
        return await in_thread(functools.partial(self.load_adapter, name, **options), self.cancel)

    def pause(self, mode: str = "", *, lease: float = 60.0, check: bool = True) -> list[EngineOutcome]:
        """Pauses all engines between two forward steps ("wait", "abort" or "keep" sequences); ``lease`` in seconds."""
        outcomes = [outcome(native) for native in self._native.pause(mode, lease)]
        return checked(outcomes) if check else outcomes

    def resume(self, *, check: bool = True) -> list[EngineOutcome]:
        outcomes = [outcome(native) for native in self._native.resume()]
        return checked(outcomes) if check else outcomes

    def sleep(
        self,
        level: int = 1,
        *,
        tags: Iterable[str] = (),
        pause_mode: str = "wait",
        timeout: float = 300.0,
        check: bool = True,
    ) -> list[EngineOutcome]:
        """Has all engines lend their memory back, every address staying as it is, while a trainer has the machine.

        Until :meth:`wake_up` they refuse all else but status and reloads; outcomes say how many bytes each has given back.

        Args:
            level: 1: what is served is kept, in host memory. 2: it is discarded, and the next reload of a whole version
                fills the memory.
            tags: some of "weights" and "kv_cache"; by default both.
            pause_mode: "wait" or "abort": what becomes of sequences under way.
        """
        options: dict[str, Any] = {"level": level, "tags": list(tags), "pause_mode": pause_mode, "timeout": timeout}
        outcomes = [outcome(native) for native in self._native.sleep(**options)]
        return checked(outcomes) if check else outcomes

    def wake_up(
        self, *, tags: Iterable[str] = (), timeout: float = 300.0, check: bool = True
    ) -> list[EngineOutcome]:
        """Has all engines take their memory again. One that cannot, for want of memory, sleeps on."""
        outcomes = [outcome(native) for native in self._native.wake_up(list(tags), timeout)]
        return checked(outcomes) if check else outcomes

    def generate(
        self,
        prompts: Iterable[AbstractSequence[int]],
        *,
        engine: int = 0,
        max_new: int = 16,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
        stop_tokens: Iterable[int] = (),
        adapter: str = "",
        least_version: Version | None = None,
        max_staleness: int | None = None,
        heard_within: float | None = None,
        ignore_eos: bool = False,
        timeout: float = 300.0,
    ) -> list[Sequence]:
        """Asks one engine for a sequence for each prompt of token ids. Temperature 0 is greedy.

        ``adapter``: the name of a LoRA adapter that the engine has (:meth:`load_adapter`); "": the base alone.
        ``least_version``: an engine that serves an earlier step, or another lineage, raises FailedPrecondition
        (:meth:`wait_for_version` waits for it).
        ``max_staleness``: so does one that is more steps behind the newest of its publisher; one that has not heard it for
        ``heard_within`` seconds (30) raises Unavailable. None: as ``serve --max-staleness`` says.
        """
        sequences = self._native.generate(
            [list(prompt) for prompt in prompts],
            engine,
            max_new=max_new,
            temperature=float(temperature),
            top_p=float(top_p),
            top_k=top_k,
            seed=seed,
            stop_tokens=list(stop_tokens),
            adapter=adapter,
            least_version=least_version,
            max_staleness=max_staleness,
            heard_within=heard_within,
            ignore_eos=ignore_eos,
            timeout=float(timeout),
        )
        return [Sequence(s.tokens, s.logprobs, s.finish, [_span(*span) for span in s.spans]) for s in sequences]

    def wait_for_version(self, least: Version, *, timeout: float = 300.0, engine: int = 0) -> None:
        """Waits until an engine serves that version or a later step of its lineage.

        Raises DeadlineExceeded, with what it serves, if ``timeout`` seconds pass first.
        """
        self._native.wait_for_version(least, timeout, engine)

    def wait_until_ready(self, *, timeout: float = 300.0) -> None:
        """Waits until every engine serves a version, those too that have not started yet.

        Raises DeadlineExceeded, with the engine and its state, if ``timeout`` seconds pass first.
        """
        deadline = time.monotonic() + timeout
        for engine, endpoint in enumerate(self.endpoints):
            wait_until_ready(endpoint, functools.partial(self.status, engine), deadline)

    def status(self, engine: int = 0) -> dict[str, Any]:
        """What an engine says of itself (docs/cli.md)."""
        answer: dict[str, Any] = json.loads(self._native.status(engine))
        return answer

    def cancel(self) -> None:
        """Gives up the call that is under way; may be called from any thread."""
        self._native.cancel()

    async def reload_async(self, *arguments: Any, **options: Any) -> list[EngineOutcome]:
        """:meth:`reload` on a thread, for asyncio. Cancelling the task gives the call up."""
        return await in_thread(functools.partial(self.reload, *arguments, **options), self.cancel)

    async def generate_async(self, *arguments: Any, **options: Any) -> list[Sequence]:
        """:meth:`generate` on a thread, for asyncio. Cancelling the task gives the call up."""
        return await in_thread(functools.partial(self.generate, *arguments, **options), self.cancel)

    def close(self) -> None:
        self._native.close()


def _source_options(source: Any) -> dict[str, Any]:
    if source is None:
        return {}
    if isinstance(source, Publisher):
        return {"publisher": source.endpoint}
    if isinstance(source, Store):
        return {"store": source.path}
    if isinstance(source, Published):
        return {"publisher": source.endpoint, "version": source.version}
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "://" not in source):
        return {"weights_path": os.fspath(os.path.abspath(source))}
    if isinstance(source, str):
        return {"publisher": source}
    endpoints = [str(endpoint) for endpoint in source]
    if not endpoints:
        raise InvalidArgument("expected the endpoints of publishers, got none")
    return {"publisher": ",".join(endpoints)}


def _span(start: int, end: int, version: Version, adapter: Version | None) -> Span:
    span = Span((start, end, version))
    span.adapter = adapter
    return span
