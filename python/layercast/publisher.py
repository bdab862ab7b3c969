"""The trainer's side: publishes versions that engines take."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any, Generator

from layercast import _native, logs
from layercast._asynchronous import in_thread
from layercast._native import Version
from layercast.closing import OfOneProcess
from layercast.errors import InvalidArgument
from layercast.given_weights import (
    Adapters,
    How,
    adapters_and_base,
    refuse_torch_options,
    source_of_torch,
    weights_of_source,
    weights_without_torch,
)
from layercast.noise.noise import Noise, NoiseStages, noise_options

if TYPE_CHECKING:
    from concurrent.futures import Future

    from layercast.trainer import Source


class Published:
    """Follows one published version. Thread-safe; ``await published`` waits until it is released."""

    def __init__(self, native: _native.PublishedVersion, endpoint: str, seconds: float) -> None:
        self._native = native
        self.endpoint = endpoint
        #: How long the call of publish held the trainer up.
        self.seconds = seconds

    @property
    def version(self) -> Version:
        """``{lineage, step, digest}``."""
        return self._native.version

    @property
    def readers(self) -> int:
        """How many sessions of receivers are open now."""
        return self._native.readers

    @property
    def released(self) -> bool:
        """The version is withdrawn, and nobody reads it any more: borrowed tensors may change."""
        return self._native.wait_released(0.0)

    def withdraw(self) -> None:
        """From now on no engine may begin to take the version."""
        self._native.withdraw()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the version is released; False if ``timeout`` seconds pass first.

        A version is withdrawn by :meth:`withdraw`, or by publishing ``retained_versions`` newer ones.
        """
        return self._native.wait_released(timeout)

    def wait_stored(self, timeout: float | None = None) -> bool:
        """Waits until the version is in the publisher's store; False if it was left out (the log says why), if there is no
        store, or if ``timeout`` seconds pass first."""
        return self._native.wait_stored(timeout)

    def as_future(self) -> Future[Version]:
        """A future that is done once the version is released."""
        from concurrent.futures import Future

        future: Future[Version] = Future()

        def wait() -> None:
            if future.set_running_or_notify_cancel():
                self.wait()
                future.set_result(self.version)

        Thread(target=wait, name="layercast-released", daemon=True).start()
        return future

    def __await__(self) -> Generator[Any, None, Version]:
        import asyncio

        return asyncio.wrap_future(self.as_future()).__await__()

    def __repr__(self) -> str:
        return f"Published({self.version}, {self.readers} readers)"


class Publisher(OfOneProcess):
    """Publishes a policy's versions; one for each process of the trainer. Thread-safe; a context manager.

    Args:
        endpoint: where engines reach it; port 0 picks a free one.
        lineage: what versions of this training run are called, unless a call says otherwise.
        keys: a folder of ``layercast keygen``: who may take versions. By default that of ``LAYERCAST_KEYS``.
        secret: instead of it, a file that all processes of a job have. By default that of ``LAYERCAST_SECRET``.
        insecure: no keys; an address beyond loopback is refused without keys or this.
        sign: a file of ``layercast keygen --sign``, by which versions are signed for engines that ask for it. By default
            that of ``LAYERCAST_SIGN``.
        retained_versions: how many are kept; older ones that are not pinned are evicted.
        retained_bytes: older ones are evicted while all that are kept take more memory; 0: no bound.
        evicted_versions: how many evicted ones live on for those that still read them.
        eviction_seconds: how long the readers of an evicted version may still take.
        threads: for copies and digests.
        stream_window_bytes: how many bytes of streams may wait for receivers.
        peer_timeout: seconds of silence after which a peer counts as lost.
        channels: the data channels that engines may choose from; empty: all that work here.
        nccl_fleet: how many ranks that take the same bytes over nccl are served together.
        allow_paths: folders of which whoever reaches the endpoint may have this publish what is there
            (:meth:`RemotePublisher.publish_folder`).
        store: a folder, made if it is not there, into which each version is also written, on a thread: engines take it from
            there when no publisher lives (:class:`Store`), and a publisher that is started anew offers it again. A stream
            is written as an engine takes it; of a sharded trainer each rank writes its part, and ``run`` must be named.
        store_versions: how many of a lineage the store keeps; older ones that are not pinned there are evicted.
        store_bytes: older ones are evicted while the store's files are larger; 0: no bound.
        metrics_bind: ``"HOST:PORT"`` where Prometheus is answered; port 0 picks one; empty: nowhere. Wheels have no
            metrics; a build with prometheus-cpp has (docs/operations.md).
        metrics_open: an address beyond loopback too, where whoever reaches it reads them.
        device_memory: tensors on a CUDA device are published from there. Needs a build with CUDA, and channels that
            reach devices. Otherwise they are brought to the host.

    Raises InvalidArgument, Unsupported (a channel), Unavailable (an address cannot be bound).
    """

    def __init__(
        self,
        endpoint: str = "tcp://127.0.0.1:0",
        *,
        lineage: str = "policy",
        keys: str | os.PathLike[str] = "",
        secret: str | os.PathLike[str] = "",
        insecure: bool = False,
        sign: str | os.PathLike[str] = "",
        retained_versions: int = 2,
        retained_bytes: int = 0,
        evicted_versions: int = 2,
        eviction_seconds: float = 600.0,
        threads: int = 2,
        stream_window_bytes: int = 256 << 20,
        peer_timeout: float = 5.0,
        channels: Iterable[str] = (),
        nccl_fleet: int = 1,
        allow_paths: Iterable[str | os.PathLike[str]] = (),
        store: str | os.PathLike[str] = "",
        store_versions: int = 10,
        store_bytes: int = 0,
        metrics_bind: str = "",
        metrics_open: bool = False,
        device_memory: bool = False,
    ) -> None:
        logs.start()
        self.lineage = lineage
        self._device_memory = device_memory
        self._native = _native.Publisher(
            endpoint=endpoint,
            keys=os.fspath(keys),
            secret=os.fspath(secret),
            insecure=insecure,
            sign=os.fspath(sign),
            retained_versions=retained_versions,
            retained_bytes=retained_bytes,
            evicted_versions=evicted_versions,
            eviction_seconds=eviction_seconds,
            threads=threads,
            stream_window_bytes=stream_window_bytes,
            peer_timeout=peer_timeout,
            channels=[channels] if isinstance(channels, str) else list(channels),
            nccl_fleet=nccl_fleet,
            allow_paths=[os.fspath(path) for path in allow_paths],
            store=os.fspath(store),
            store_versions=store_versions,
            store_bytes=store_bytes,
            metrics_bind=metrics_bind,
            metrics_open=metrics_open,
        )

    @property
    def endpoint(self) -> str:
        """The address to give to engines."""
        return self._native.endpoint

    @property
    def metrics_address(self) -> str:
        """Where Prometheus is answered, ``"127.0.0.1:41234"``; empty: nowhere."""
        return self._native.metrics_address

    def publish(
        self,
        weights: Any,
        *,
        step: int,
        lineage: str | None = None,
        dtype: Any = None,
        adapters: Adapters = "merge",
        gather: bool = False,
        stream: bool = False,
        config: str | None = None,
        rank: tuple[int, int] | None = None,
        run: str | None = None,
        noise: Noise | NoiseStages | None = None,
        load_format: str = "auto",
    ) -> Published | None:
        """Publishes a version, and returns once the tensors are copied: training may go on.

        Returns None on a rank of a sharded trainer that holds nothing of the model; engines then have no use for its
        endpoint (:func:`layercast.trainer.endpoints_of_all` gathers those of the others).

        Args:
            weights: an ``nn.Module`` (plain, compiled, DDP, FSDP2, tensor parallel, PEFT), a state dict, an iterable of
                ``(name, tensor)`` or ``(name, tensor, (whole shape, offsets))``, or the path of a checkpoint. Of a path
                and of an iterator, ``dtype``, ``adapters`` and ``gather`` are refused.
            step: newer than the lineage's last.
            dtype: floating-point tensors of two bytes or more are cast to it (a ``torch.dtype``); by default, fp32
                masters to what a transformers model's config says.
            adapters: of a PEFT model, ``"merge"`` publishes the base with its active adapters merged in, ``"base"`` the
                base alone.
            gather: a sharded module's tensors are gathered one after the other, and rank 0 publishes them; no stream. By
                default each rank publishes the shards that it holds, and nothing is gathered.
            stream: the tensors are kept no longer than engines take them; they must not change until the version is
                released. Not of an iterator.
            config: the text of config.json, for engines to hold against their own; by default a transformers model's.
            rank: which of a version's publishers this is, ``(rank, ranks)``. By default, where torch.distributed runs,
                its ranks publish together: of what several of them hold alike (all of a DDP module), one publishes each
                tensor. With ``rank``, this one publishes all that it is given; ``(0, 1)`` is one that publishes alone.
            run: which run of the trainer this is; by default what its launcher says.
            noise: what engines add to their norms when they install the version. What is published is clean.

        Raises InvalidArgument, Corrupt (NaN or infinity, with tensor and index), FailedPrecondition, Unsupported, and
        whatever an iterator raises.
        """
        began = time.perf_counter()
        options = self._named(step, lineage, rank, run, noise)
        if gather and stream:
            raise InvalidArgument("gather: expected a snapshot, got a stream, in which no rank but 0 would go on")
        how = self._how(dtype, options, stream=stream, load_format=load_format)
        native = self._publish_weights(weights, how, adapters, gather, config or "", options)
        return self._followed(native, began)

    def publish_adapters(
        self,
        adapters: Mapping[str, Any],
        *,
        step: int,
        base: Any = None,
        base_version: Version | Mapping[str, Version] | None = None,
        lineage: str | None = None,
        dtype: Any = None,
        stream: bool = False,
        config: str | None = None,
        rank: tuple[int, int] | None = None,
        run: str | None = None,
        load_format: str = "auto",
    ) -> Published | None:
        """Publishes a version of LoRA adapters, alone or with their base, and returns once the tensors are copied.

        Args:
            adapters: by the names by which engines find them in the version: a folder of PEFT's ``save_pretrained``; a
                PEFT model (its active adapter; plain, compiled, DDP, FSDP2) or ``(model, name)``; or
                ``(configuration, tensors)``, with the text or the dict of an adapter_config.json and PEFT's names.
            base: what :meth:`publish` takes, of which adapters are left out. Engines take base and adapters each for
                itself.
            base_version: the version of the base that the adapters were trained on, of all or by adapter. An engine that
                serves a base of another digest refuses them. None: not said.
            dtype: tensors of torch are cast to it; by default the factors stay as they are, and the base is cast as by
                :meth:`publish`.
            config: of the base, the text of config.json; by default a transformers model's.

        All else is as of :meth:`publish`. Of a trainer of several ranks, each publishes the factors that it holds. Raises
        as :meth:`publish`; Unsupported, naming the field, for what adapter_config.json may say and engines do not serve
        (DoRA, modules_to_save, ...); InvalidArgument, naming the tensor, for factors that do not fit each other.
        """
        began = time.perf_counter()
        options = self._named(step, lineage, rank, run)
        if not isinstance(adapters, Mapping) or not adapters:
            raise InvalidArgument(f"adapters: expected a dict of them by their names, got {adapters!r:.200}")
        how = self._how(dtype, options, stream=stream, load_format=load_format)
        versions = base_version if isinstance(base_version, Mapping) else dict.fromkeys(adapters, base_version)
        given, of_base, part = adapters_and_base(adapters, base, how, config or "", versions)
        if part is None:
            return None
        options = {"rank": part[0], "ranks": part[1], **options, "stream": stream}
        return self._followed(self._native.publish_adapters(given, of_base, **options), began)

    @contextmanager
    def borrowed(
        self,
        weights: Any,
        *,
        step: int,
        lineage: str | None = None,
        dtype: Any = None,
        adapters: Adapters = "merge",
        config: str | None = None,
        rank: tuple[int, int] | None = None,
        run: str | None = None,
        noise: Noise | NoiseStages | None = None,
    ) -> Iterator[Published | None]:
        """Publishes without a copy: the tensors must not change within the ``with``, and engines take them in it.

        Leaving it withdraws the version, and waits until nobody reads it any more. Takes what :meth:`publish` takes, but
        no iterator and no path; tensors that are cast, merged or made contiguous are copied nevertheless.
        """
        began = time.perf_counter()
        options = self._named(step, lineage, rank, run, noise)
        if isinstance(weights, (str, os.PathLike)):
            raise InvalidArgument("borrowed: expected tensors, got a path, whose tensors are read anew: publish it")
        how = self._how(dtype, options, borrowed=True)
        published = self._followed(self._publish_weights(weights, how, adapters, False, config or "", options), began)
        if published is None:
            yield None
            return
        try:
            yield published
        finally:
            published.withdraw()
            published.wait()

    def _named(
        self,
        step: int,
        lineage: str | None,
        rank: tuple[int, int] | None,
        run: str | None,
        noise: Noise | NoiseStages | None = None,
    ) -> dict[str, Any]:
        options: dict[str, Any] = {"lineage": self.lineage if lineage is None else lineage, "step": step}
        options |= noise_options(noise, options["lineage"], step)
        if run is not None:
            options["run"] = run
        if rank is not None:
            if not isinstance(rank, (tuple, list)) or len(rank) != 2:
                raise InvalidArgument(f"rank: expected (rank, ranks), got {rank!r}")
            options |= {"rank": rank[0], "ranks": rank[1]}
        return options

    def _how(
        self,
        dtype: Any,
        options: dict[str, Any],
        *,
        borrowed: bool = False,
        stream: bool = False,
        load_format: str = "auto",
    ) -> How:
        return How(dtype, borrowed, stream, self._device_memory, "rank" in options, load_format)

    def _followed(self, native: _native.PublishedVersion | None, began: float) -> Published | None:
        return None if native is None else Published(native, self.endpoint, time.perf_counter() - began)

    def _publish_weights(
        self, weights: Any, how: How, adapters: Adapters, gather: bool, config: str, options: dict[str, Any]
    ) -> _native.PublishedVersion | None:
        options["stream"] = how.stream
        source = source_of_torch(weights, how, adapters, gather)
        if source is None:
            refuse_torch_options(weights, how.dtype, adapters, gather)
            options["layer_order"] = how.stream and isinstance(weights, (str, os.PathLike))
            return self._native.publish(weights_without_torch(weights, how, config), **options)
        if source.gathers:
            return self._publish_gathered(source, config, options)
        if source.part is None:
            return None
        options = {"rank": source.part[0], "ranks": source.part[1], **options}
        return self._native.publish(weights_of_source(source, how, config), **options)

    def _publish_gathered(
        self, source: Source, config: str, options: dict[str, Any]
    ) -> _native.PublishedVersion | None:
        """Every rank walks to the end, also where this one fails: the others wait for it in a collective."""
        walk = iter(source.pieces)
        if source.part is None:
            for _ in walk:
                pass
            return None
        try:
            weights = _native.Weights.of_iterator(walk, self._device_memory, config or source.config)
            return self._native.publish(weights, **options)
        except Exception:
            for _ in walk:
                pass
            raise

    async def publish_async(self, weights: Any, **options: Any) -> Published | None:
        """:meth:`publish` on a thread, for asyncio.

        Cancelling the task does not end the call, which reads the tensors: the task is cancelled once it has ended.
        """
        return await in_thread(functools.partial(self.publish, weights, **options))

    def versions(self) -> _native.VersionList:
        """What is kept, oldest first, and evicted versions that are still read."""
        return self._native.versions()

    def pin(self, version: Version, pinned: bool = True) -> None:
        """A version that is pinned is not evicted, and does not count among the retained ones; 16 may be."""
        self._native.pin(version, pinned)

    def evict(self, version: Version) -> None:
        """No engine may begin to take the version any more; it is freed when nobody reads it."""
        self._native.evict(version)

    def close(self) -> None:
        """Ends all sessions; returns once no walk of a stream runs any more. Versions count as released then."""
        self._native.close()

    def __repr__(self) -> str:
        return "Publisher(closed)" if self._native.closed else f"Publisher('{self.endpoint}')"
