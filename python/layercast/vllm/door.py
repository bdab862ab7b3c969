"""HTTP control of a vLLM server: an endpoint plug-in, loaded where ``VLLM_PLUGINS`` names ``layercast``.

    POST /layercast/reload   {"endpoint": "tcp://...", "lineage": "", "step": 7, "pause_mode": "wait", "timeout": 300}
                             and "adapters": {"NAME": what the version calls it}, which are committed with their base
    POST /layercast/stage    the same without the commit; then /layercast/commit {"pause_mode": ...} or /layercast/abort
    POST /layercast/verify   {"model": "DIR"}: reads the served bytes back; holds them against a cold load of that folder
    GET  /layercast/status   {"version": {...}, "ranks": [...]}
    POST /layercast/load_adapter    {"name": "policy", "endpoint": ..., "lineage": ..., "step": ..., "adapter": "", ...}
    POST /layercast/unload_adapter  {"name": "policy"}
    GET  /layercast/adapters        {"adapters": {"policy": {...}}, "ranks": [...]}

``pause_mode`` says what becomes of sequences under way at a commit. ``wait``: they end first, and new requests wait at
the door; no answer has tokens of two versions. ``keep``: they go on with the new weights, their KV cache computed anew.
``abort``: they end, as aborted. Of an adapter, ``wait`` holds nobody up: sequences end with the version that they began
with. Errors are ``{"error": {"code": ..., "message": ...}}``, with the codes of Layercast.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from layercast.errors import Error, FailedPrecondition, InvalidArgument
from layercast.vllm.gate import Gate
from layercast.vllm.adapter_paths import path_of, version_in
from layercast.vllm.sync import Answers, Engine, Torn, answer_of

_Work = Callable[[dict[str, Any]], dict[str, Any]]

PAUSE_MODES = ("wait", "keep", "abort")
_STATUS = {
    "invalid_argument": 400,
    "not_found": 404,
    "failed_precondition": 409,
    "unsupported": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
_SOURCE = {"endpoint": str, "lineage": str, "step": int}
_ADAPTER = {"name": str, "adapter": str}
_COMMIT = {"pause_mode": str}
_TIMEOUT = {"timeout": (int, float)}


class Door:
    """vLLM's EndpointPlugin."""

    name = "layercast"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._gate = Gate()
        self._one = asyncio.Lock()  # one sync at a time; the next one waits
        self._engine: Engine | None = None
        self._client: Any = None
        self._models: Any = None  # vLLM's list of what requests may name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._keys: list[str] = []
        self._drain = 300.0

    def attach_router(self, app: FastAPI) -> None:
        app.add_middleware(_Middleware, gate=self._gate)
        routes: dict[str, tuple[str, _Work, dict[str, Any]]] = {
            "reload": ("POST", self._reload, _SOURCE | _COMMIT | _TIMEOUT | {"adapters": dict}),
            "stage": ("POST", lambda body: _summary(self._open_engine().stage(**body)), _SOURCE | _TIMEOUT),
            "commit": ("POST", lambda body: _summary(self._open_engine().commit(**body)), _COMMIT),
            "abort": ("POST", lambda body: _summary(self._open_engine().abort()), {}),
            "verify": ("POST", lambda body: _summary(self._open_engine().verify(**body)), {"model": str}),
            "status": ("GET", lambda body: _summary(self._open_engine().status()), {}),
            "load_adapter": ("POST", self._load_adapter, _ADAPTER | _SOURCE | _COMMIT | _TIMEOUT),
            "unload_adapter": ("POST", self._unload_adapter, {"name": str} | _COMMIT),
            "adapters": ("GET", lambda body: _adapters(self._open_engine().adapters()), {}),
        }
        for name, (method, work, fields) in routes.items():
            app.add_api_route(f"/layercast/{name}", self._route(work, fields), methods=[method], name=f"layercast {name}")

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        if engine_client is None:
            return
        self._client = engine_client
        self._models = getattr(state, "openai_serving_models", None)
        self._keys = [key for key in (getattr(args, "api_key", None) or []) if key]
        self._loop = loop = asyncio.get_running_loop()
        self._engine = Engine(self._caller(loop), self._stiller(loop))

    def _open_engine(self) -> Engine:
        if self._engine is None:
            raise FailedPrecondition("this server has no engine")
        return self._engine

    def _load_adapter(self, body: dict[str, Any]) -> dict[str, Any]:
        """Loads it on all ranks, and then lets requests name it, by a path and an id that no other version has. Those
        under way end with the version that they began with, which is then dropped."""
        name = body.get("name", "")
        numbers = self._numbers([name])
        said = _adapters(self._open_engine().load_adapter(**{"name": "", **body, "number": numbers.get(name, 0)}))
        self._have_named(numbers, said["adapters"])
        return said

    def _reload(self, body: dict[str, Any]) -> dict[str, Any]:
        """With ``adapters``, they are named as soon as they are committed, while the engine stands still."""
        engine, adapters = self._open_engine(), body.get("adapters") or {}
        if not adapters:
            return _summary(engine.reload(**body))
        numbers = self._numbers(adapters)

        def name(answers: Answers) -> None:
            self._have_named(numbers, answers[0]["adapters"])

        return _summary(engine.reload(**body, numbers=numbers, then=name))

    def _numbers(self, names: Iterable[str]) -> dict[str, int]:
        """New ids for requests of these names."""
        if self._models is None:
            return {}
        for name in names:
            if self._models.is_base_model(name):
                raise InvalidArgument(f"name: '{name}' is the base model")
        return {name: self._models.lora_id_counter.inc(1) for name in names}

    def _have_named(self, numbers: dict[str, int], versions: dict[str, Any]) -> None:
        from vllm.lora.request import LoRARequest

        assert self._loop is not None
        for name, number in numbers.items():
            request = LoRARequest(name, number, path_of(name, versions[name]["digest"]))
            self._run(self._loop, self._name(name, request))

    async def _name(self, name: str, request: Any) -> None:
        """From now on requests for the name mean this one."""
        before = self._models.lora_requests.get(name)
        self._models.lora_requests[name] = request
        if before is None:
            return
        _, digest = version_in(before.lora_path) or ("", "")
        task = asyncio.create_task(self._retire(name, digest, self._gate.turn()))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _retire(self, name: str, digest: str, turn: int) -> None:
        await self._gate.left(turn)
        async with self._one:
            with suppress(Error):  # of an engine that is ending
                await asyncio.to_thread(self._open_engine().retire_adapter, name, digest)

    def _unload_adapter(self, body: dict[str, Any]) -> dict[str, Any]:
        engine, name = self._open_engine(), body.get("name", "")
        kept = self._models.lora_requests.pop(name, None) if self._models is not None else None
        try:
            if kept is not None and body.get("pause_mode") != "abort":
                assert self._loop is not None
                self._run(self._loop, self._gate.left(self._gate.turn(), self._drain))
            return _adapters(engine.unload_adapter(**{"name": "", **body}))
        except Error:
            if kept is not None:
                self._models.lora_requests[name] = kept
            raise

    def _route(self, work: _Work, fields: dict[str, Any]) -> Callable[..., Any]:
        async def answer(request: Request) -> JSONResponse:
            try:
                self._admit(request)
                body = await _body_of(request, fields)
                if not fields:
                    return JSONResponse(await asyncio.to_thread(work, body))
                async with self._one:
                    self._drain = float(body.get("timeout", 300.0))
                    return JSONResponse(await asyncio.to_thread(work, body))
            except Error as error:
                return JSONResponse(
                    {"error": {"code": error.code, "message": str(error)}}, status_code=_STATUS.get(error.code, 500)
                )

        return answer

    def _admit(self, request: Request) -> None:
        """Where the server has API keys, they are asked for here too."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._keys and not any(hmac.compare_digest(given.encode(), key.encode()) for key in self._keys):
            raise FailedPrecondition("expected one of the server's API keys as 'Authorization: Bearer KEY'")

    def _caller(self, loop: asyncio.AbstractEventLoop) -> Callable[[str, dict[str, Any]], Answers]:
        def call(op: str, arguments: dict[str, Any]) -> Answers:
            answers: Answers = self._run(loop, self._client.collective_rpc("layercast", args=(op, arguments)))
            return answers

        return call

    def _run(self, loop: asyncio.AbstractEventLoop, coroutine: Any) -> Any:
        """What the coroutine returns, on the server's loop."""
        asked = asyncio.run_coroutine_threadsafe(coroutine, loop)
        return answer_of(asked, lambda: bool(self._client.errored))

    def _stiller(self, loop: asyncio.AbstractEventLoop) -> Callable[[str], Any]:
        run = functools.partial(self._run, loop)

        @contextmanager
        def still(mode: str) -> Iterator[None]:
            mode = mode or "wait"
            if mode not in PAUSE_MODES:
                raise InvalidArgument(f"pause_mode: expected one of {', '.join(PAUSE_MODES)}, got '{mode}'")
            try:
                run(self._hold(mode))
                yield
            except Torn:
                raise  # the gate stays closed, and the scheduler paused
            except BaseException:
                run(self._let_go(mode, changed=False))
                raise
            run(self._let_go(mode, changed=True))

        return still

    async def _hold(self, mode: str) -> None:
        if mode != "keep":
            self._gate.close()
        if mode == "wait":
            await self._gate.idle(self._drain)
        else:
            await self._client.pause_generation(mode=mode, clear_cache=False)

    async def _let_go(self, mode: str, changed: bool) -> None:
        if changed:
            await self._client.reset_prefix_cache(reset_running_requests=mode == "keep")
            await self._client.reset_encoder_cache()
        if await self._client.is_paused():
            await self._client.resume_generation()
        self._gate.open()


class _Middleware:
    def __init__(self, app: Any, gate: Gate) -> None:
        self._application = gate.wrap(app)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._application(scope, receive, send)


async def _body_of(request: Request, fields: dict[str, Any]) -> dict[str, Any]:
    try:
        body = await request.json() if await request.body() else {}
    except ValueError as error:
        raise InvalidArgument(f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidArgument(f"the body: expected an object, got {type(body).__name__}")
    for name, value in body.items():
        if name not in fields:
            raise InvalidArgument(f"no field '{name}': expected some of {', '.join(fields) or 'none'}")
        if not isinstance(value, fields[name]) or isinstance(value, bool):
            raise InvalidArgument(f"'{name}': expected {fields[name]}, got {value!r}")
    return body


def _adapters(answers: Answers) -> dict[str, Any]:
    return {"adapters": answers[0]["adapters"], "ranks": answers}


def _summary(answers: Answers) -> dict[str, Any]:
    versions = [answer["version"] for answer in answers]
    same = all(version == versions[0] for version in versions)
    return {
        "version": versions[0] if same else None,
        "torn": not same or any(answer["torn"] for answer in answers),
        "ranks": answers,
    }
