"""Engines that are vLLM servers with Layercast's door: the controller's calls, over HTTP."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from layercast._native import Version
from layercast.errors import Cancelled, DeadlineExceeded, Error, Internal, InvalidArgument, Unavailable, Unsupported, of_code

_SLACK = 30.0  # seconds that a server may take beyond the deadline that it was given


def is_http(endpoint: str) -> bool:
    return endpoint.startswith(("http://", "https://"))


@dataclass(frozen=True)
class Answered:
    """As the extension's EngineOutcome."""

    endpoint: str
    ok: bool
    version: Version | None
    previous: Version | None
    report_json: str
    code: str
    message: str
    given_back: int = 0


class HttpEngines:
    """Takes the place of the extension's Controller for endpoints that begin with ``http``."""

    def __init__(self, endpoints: list[str], api_key: str = "") -> None:
        if len(set(endpoints)) != len(endpoints):
            raise InvalidArgument(f"expected each engine once, got {endpoints}")
        self.endpoints = endpoints
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._cancelled = threading.Event()
        self._under_way = False

    def close(self) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Tells engines to drop what the call that is under way has them stage; nothing if there is none."""
        if not self._under_way:
            return
        self._cancelled.set()
        for endpoint in self.endpoints:
            threading.Thread(target=self._try_to_abort, args=(endpoint,), daemon=True).start()

    def reload(self, on_progress: Any, **options: Any) -> list[Answered]:
        self._cancelled.clear()
        self._under_way = True
        try:
            return self._reload(options)
        finally:
            self._under_way = False

    def _reload(self, options: dict[str, Any]) -> list[Answered]:
        if options.get("previous"):
            raise Unsupported("roll_back: a vLLM server keeps no previous version")
        if options.get("trace") or options.get("traceparent"):
            raise Unsupported("trace: a vLLM server records no timeline")
        all_or_none, timeout = options.pop("all_or_none"), options.pop("timeout")
        names = options.pop("adapters", None) or []
        if names and (all_or_none or "*" in names):
            raise Unsupported("adapters: a vLLM server takes those that are named with their base, for itself alone")
        body = {**_source(options), "timeout": timeout, **({"adapters": {name: name for name in names}} if names else {})}
        pause = {"pause_mode": options["pause_mode"]} if options.get("pause_mode") else {}
        if not all_or_none:
            return self._of_all(lambda endpoint: self._ask(endpoint, "reload", {**body, **pause}, timeout))
        staged = self._of_all(lambda endpoint: self._ask(endpoint, "stage", body, timeout))
        failed = [outcome for outcome in staged if not outcome.ok]
        if not failed:
            return self._of_all(lambda endpoint: self._ask(endpoint, "commit", pause, timeout))
        for outcome in staged:
            if outcome.ok:
                self._try_to_abort(outcome.endpoint)
        because = f"engine {failed[0].endpoint} failed, and all or none were to commit"
        return [
            outcome if not outcome.ok else _failed(outcome.endpoint, Cancelled(because), outcome.version)
            for outcome in staged
        ]

    def pause(self, mode: str, lease: float) -> list[Answered]:
        raise Unsupported("pause: a vLLM server is paused by its own routes")

    def resume(self) -> list[Answered]:
        raise Unsupported("resume: a vLLM server is resumed by its own routes")

    def sleep(self, **options: Any) -> list[Answered]:
        raise Unsupported("sleep: a vLLM server is put to sleep by its own routes")

    def wake_up(self, tags: list[str], timeout: float) -> list[Answered]:
        raise Unsupported("wake_up: a vLLM server is woken up by its own routes")

    def generate(self, prompts: Any, engine: int, **options: Any) -> Any:
        raise Unsupported("generate: ask a vLLM server by its own API (/v1/completions)")

    def load_adapter(self, name: str, **options: Any) -> list[Answered]:
        for option in ("path", "pin", "all_or_none"):
            if options.get(option):
                raise Unsupported(f"{option}: a vLLM server takes adapters of publishers, one engine after the other")
        timeout = options["timeout"]
        body = {"name": name, "adapter": options["adapter"], "timeout": timeout, **_source(options)}
        return self._of_all(lambda endpoint: self._ask_adapter(endpoint, "load_adapter", body, timeout))

    def unload_adapter(self, name: str) -> list[Answered]:
        return self._of_all(lambda endpoint: self._ask_adapter(endpoint, "unload_adapter", {"name": name}, 300.0))

    def pin_adapter(self, name: str, pin: bool) -> list[Answered]:
        raise Unsupported("pin_adapter: a vLLM server keeps as many adapters as --max-cpu-loras says")

    def list_adapters(self, engine: int) -> str:
        held = self._request(self.endpoints[engine], "adapters", None, 10.0)["adapters"]
        return json.dumps({"adapters": [{"name": name, "version": version} for name, version in held.items()]})

    def _ask_adapter(self, endpoint: str, what: str, body: dict[str, Any], timeout: float) -> Answered:
        previous = None
        try:
            previous = _version_in(self._request(endpoint, "adapters", None, 10.0), body["name"])
            version = _version_in(self._request(endpoint, what, body, timeout + _SLACK), body["name"])
        except Error as error:
            return _failed(endpoint, error, previous)
        return Answered(endpoint, True, version, previous, "", "", "")

    def wait_for_version(self, least: Any, timeout: float, engine: int) -> None:
        raise Unsupported("wait_for_version: a vLLM server is asked by status, as often as one likes")

    def status(self, engine: int) -> str:
        return json.dumps(self._request(self.endpoints[engine], "status", None, 10.0))

    def verify(self, engine: int, model: str) -> list[dict[str, Any]]:
        """What differs from a cold load of a checkpoint that the server can read; each with its ``rank``."""
        answer = self._request(self.endpoints[engine], "verify", {"model": model}, 3600.0)
        return [{"rank": rank["rank"], **found} for rank in answer["ranks"] for found in rank["differences"]]

    def _of_all(self, ask: Callable[[str], Answered]) -> list[Answered]:
        with ThreadPoolExecutor(len(self.endpoints)) as pool:
            return list(pool.map(ask, self.endpoints))

    def _ask(self, endpoint: str, what: str, body: dict[str, Any], timeout: float) -> Answered:
        previous = None
        try:
            previous = _version(self._request(endpoint, "status", None, 10.0))
            if self._cancelled.is_set():
                raise Cancelled("the call was given up")
            answer = self._request(endpoint, what, body, timeout + _SLACK)
        except Error as error:
            return _failed(endpoint, error, previous)
        report = json.dumps(answer["ranks"][0]["report"])
        return Answered(endpoint, True, _version(answer), previous, report, "", "")

    def _request(self, endpoint: str, what: str, body: dict[str, Any] | None, timeout: float) -> dict[str, Any]:
        url = f"{endpoint.rstrip('/')}/layercast/{what}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            raise _error_in(error, url) from None
        except TimeoutError:
            raise DeadlineExceeded(f"engine {endpoint} has not answered {what} after {timeout:g} s") from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise DeadlineExceeded(f"engine {endpoint} has not answered {what} after {timeout:g} s") from None
            raise Unavailable(f"engine {endpoint} cannot be reached: {reason}") from None

    def _try_to_abort(self, endpoint: str) -> None:
        try:
            self._request(endpoint, "abort", {}, 10.0)
        except Error:
            pass  # its next reload drops what is staged


def _error_in(error: urllib.error.HTTPError, url: str) -> Error:
    text = error.read().decode(errors="replace")
    try:
        said = json.loads(text)["error"]
        return of_code(said["code"])(said["message"])
    except (ValueError, KeyError, TypeError):
        pass
    if error.code == 404:
        return Unsupported(f"{url}: the server has no such route: is it vLLM with VLLM_PLUGINS=layercast?")
    return Internal(f"{url}: answered {error.code}: {text[:200]}")


def _failed(endpoint: str, error: Error, served: Version | None) -> Answered:
    return Answered(endpoint, False, served, served, "", error.code, str(error))


def _version_in(answer: dict[str, Any], adapter: str) -> Version | None:
    return _version({"version": answer["adapters"].get(adapter)})


def _version(answer: dict[str, Any]) -> Version | None:
    version = answer.get("version")
    return Version(version["lineage"], version["step"], version["digest"]) if version else None


def _source(options: dict[str, Any]) -> dict[str, Any]:
    """The publisher and the version, as the door has them. Raises Unsupported for what vLLM servers cannot take."""
    for name in ("weights_path", "store", "partial", "channel", "allow_config_change"):
        if options.get(name):
            raise Unsupported(f"{name}: a vLLM server takes whole versions of publishers")
    source: dict[str, Any] = {"endpoint": options["publisher"]} if "publisher" in options else {}
    if version := options.get("version"):
        source |= {"lineage": version.lineage, "step": version.step}
    return source
