"""What publishers offer and keep, and a version of theirs as tensors on the host."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from layercast import _native, logs
from layercast._native import Version, VersionList
from layercast.dtypes import torch_dtype
from layercast.errors import InvalidArgument, NotFound
from layercast.receiver import Receiver
from layercast.recording import Box, Copy, Recording
from layercast.tensor import TensorSpec

_ASKED_EVERY = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class Offered:
    """A version that publishers have. ``config`` is the text of its model's config.json; "": they have none.

    ``specs`` are of the base's tensors; ``adapters``, by name, of those of LoRA adapters, by their names in the version.
    """

    version: Version
    specs: tuple[TensorSpec, ...]
    config: str
    adapters: dict[str, tuple[TensorSpec, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FetchedAdapter:
    """A LoRA adapter on the host: the fields of its adapter_config.json that act, and its factors under PEFT's names."""

    version: Version
    name: str
    config: dict[str, Any]
    base: Version | None
    tensors: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OfferedAdapter:
    """A LoRA adapter of a version, of which only the configuration was taken. ``specs``: its factors under PEFT's names."""

    version: Version
    name: str
    config: dict[str, Any]
    base: Version | None
    specs: tuple[TensorSpec, ...]
    _endpoints: list[str]
    _every: tuple[TensorSpec, ...]  # of the version
    _timeout: float

    def take(self, recording: Recording, buffers: dict[str, Any]) -> None:
        """Fills the recording's parameters. Its sources are the factors, by PEFT's names. Raises as :func:`fetch`."""
        prefix = f"{_native.ADAPTERS_PREFIX}{self.name}/"
        copies = tuple(replace(copy, source=prefix + copy.source) for copy in recording.copies)
        _take(self._endpoints, self.version, replace(recording, sources=self._every, copies=copies), buffers, self._timeout)

    def fetch(self) -> FetchedAdapter:
        """Its factors whole. Raises as :func:`fetch`."""
        tensors = _empty(self.specs)
        self.take(_whole(self.specs), tensors)
        return FetchedAdapter(self.version, self.name, self.config, self.base, tensors)


def offered(
    endpoints: str | Iterable[str], *, lineage: str = "", step: int | None = None, timeout: float = 10.0
) -> Offered:
    """Asks the publishers of a trainer's ranks for a version, by default the newest, and takes none of its bytes.

    Raises Unavailable, DeadlineExceeded (after ``timeout`` seconds), NotFound.
    """
    version, rows, config = _native.published(endpoints_of(endpoints), lineage, step, timeout)
    specs: list[TensorSpec] = []
    adapters: dict[str, list[TensorSpec]] = {}
    for spec in (TensorSpec(*row) for row in rows):
        of = spec.name.removeprefix(_native.ADAPTERS_PREFIX).split("/", 1)
        is_adapters = spec.name.startswith(_native.ADAPTERS_PREFIX) and len(of) == 2
        (adapters.setdefault(of[0], []) if is_adapters else specs).append(spec)
    return Offered(version, tuple(specs), config, {name: tuple(each) for name, each in adapters.items()})


def offered_in_time(endpoints: str | Iterable[str], *, lineage: str, step: int, timeout: float) -> Offered:
    """As :func:`offered`, of a version that may not be published yet. Raises NotFound after ``timeout`` seconds."""
    endpoints = endpoints_of(endpoints)
    until = time.monotonic() + timeout
    while True:
        try:
            return offered(endpoints, lineage=lineage, step=step)
        except NotFound:
            if time.monotonic() > until:
                raise
        time.sleep(_ASKED_EVERY)


def endpoints_of(endpoints: str | Iterable[str]) -> list[str]:
    """A list, or endpoints separated by commas."""
    return endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)


def fetch(
    endpoints: str | Iterable[str], *, lineage: str = "", step: int | None = None, timeout: float = 300.0
) -> tuple[Version, dict[str, Any]]:
    """A whole version as torch tensors on the host, by name, in the publisher's order.

    Raises as :func:`offered`, and Corrupt.
    """
    endpoints = endpoints_of(endpoints)
    found = offered(endpoints, lineage=lineage, step=step, timeout=timeout)
    return found.version, _fetched(endpoints, found, found.specs, timeout)


def fetch_in_parts(
    endpoints: str | Iterable[str], found: Offered, most_bytes: int, *, timeout: float = 300.0
) -> Iterator[dict[str, Any]]:
    """As :func:`fetch`, in parts of at most ``most_bytes``, or of one tensor that is larger."""
    endpoints = endpoints_of(endpoints)
    part: list[TensorSpec] = []
    size = 0
    for spec in found.specs:
        own = math.prod(spec.shape) * torch_dtype(spec.dtype).itemsize
        if part and size + own > most_bytes:
            yield _fetched(endpoints, found, tuple(part), timeout)
            part, size = [], 0
        part.append(spec)
        size += own
    if part:
        yield _fetched(endpoints, found, tuple(part), timeout)


def find_adapter(
    endpoints: str | Iterable[str],
    *,
    name: str = "",
    lineage: str = "",
    step: int | None = None,
    timeout: float = 300.0,
) -> OfferedAdapter:
    """A LoRA adapter of a version, by default its only one. Raises as :func:`fetch`."""
    endpoints = endpoints_of(endpoints)
    found = offered(endpoints, lineage=lineage, step=step, timeout=timeout)
    known = ", ".join(f"'{each}'" for each in sorted(found.adapters)) or "none"
    if not name and len(found.adapters) > 1:
        raise InvalidArgument(f"version {found.version} has several adapters: expected one of {known}")
    name = name or next(iter(found.adapters), "")
    if name not in found.adapters:
        raise NotFound(f"version {found.version} has no adapter '{name}': it has {known}")
    own = {spec.name.removeprefix(f"{_native.ADAPTERS_PREFIX}{name}/"): spec for spec in found.adapters[name]}
    config = own.pop(_native.ADAPTER_CONFIG_TENSOR)
    text = _empty((config,))
    _take(endpoints, found.version, replace(_whole((config,)), sources=_every(found)), text, timeout)
    said = json.loads(bytes(text[config.name].numpy()))
    base = Version(**said["base"]) if said["base"] else None
    specs = tuple(replace(spec, name=short) for short, spec in own.items())
    return OfferedAdapter(found.version, name, said["config"], base, specs, endpoints, _every(found), timeout)


def _every(found: Offered) -> tuple[TensorSpec, ...]:
    return (*found.specs, *(spec for each in found.adapters.values() for spec in each))


def _empty(specs: Iterable[TensorSpec]) -> dict[str, Any]:
    import torch

    return {spec.name: torch.empty(spec.shape, dtype=torch_dtype(spec.dtype)) for spec in specs}


def _whole(specs: tuple[TensorSpec, ...]) -> Recording:
    """Of these tensors, as they are."""

    def whole(spec: TensorSpec) -> Box:
        return Box((0,) * len(spec.shape), tuple(spec.shape))

    copies = tuple(Copy(spec.name, spec.name, whole(spec), whole(spec)) for spec in specs)
    return Recording(specs, specs, copies, {})


def _fetched(
    endpoints: list[str], found: Offered, specs: tuple[TensorSpec, ...], timeout: float
) -> dict[str, Any]:
    tensors = _empty(specs)
    _take(endpoints, found.version, replace(_whole(specs), sources=_every(found)), tensors, timeout)
    return tensors


def _take(
    endpoints: list[str], version: Version, recording: Recording, buffers: dict[str, Any], timeout: float
) -> None:
    with Receiver(recording, buffers=buffers, commit="in_place", timeout=timeout) as receiver:
        receiver.reload_weights(endpoints, lineage=version.lineage, step=version.step)


class RemotePublisher:
    """A publisher of another process, by its endpoint.

    Args:
        keys, secret, insecure: as :class:`Controller`'s; by which the publisher admits this process.

    Every call raises Unavailable or DeadlineExceeded, naming the publisher, and what it refuses with.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        keys: str | os.PathLike[str] = "",
        secret: str | os.PathLike[str] = "",
        insecure: bool = False,
        timeout: float = 300.0,
    ) -> None:
        logs.start()
        self.endpoint = endpoint
        by: dict[str, Any] = {"keys": os.fspath(keys), "secret": os.fspath(secret), "insecure": insecure}
        self._native = _native.RemotePublisher(endpoint, timeout, **by)

    def versions(self) -> VersionList:
        """What it keeps, oldest first, and evicted versions that are still read."""
        return self._native.versions()

    def pin(self, version: Version | str, pinned: bool = True) -> VersionList:
        """A version that is pinned is not evicted. Returns what is kept then.

        ``version`` may be ``"run-17@42"``, or 8 or more digits of a digest, here and below.
        """
        return self._native.pin(self._found(version), pinned)

    def evict(self, version: Version | str) -> VersionList:
        """No engine may begin to take the version any more; it is freed when nobody reads it."""
        return self._native.evict(self._found(version))

    def publish_folder(
        self,
        path: str | os.PathLike[str],
        *,
        step: int,
        lineage: str = "",
        run: str = "",
        load_format: str = "auto",
    ) -> Version:
        """Has it publish a checkpoint that it can read, and returns once the version is offered.

        The folder lies in one of the publisher's ``allow_paths``. Without ``lineage``, that of its newest version.
        """
        return self._native.publish_folder(os.path.abspath(path), load_format, lineage, step, run)

    def _found(self, version: Version | str) -> Version:
        return self.versions().named(version).version if isinstance(version, str) else version

    def __repr__(self) -> str:
        return f"RemotePublisher('{self.endpoint}')"
