"""The engine's side, on one rank: takes new weights and writes them into the engine's own buffers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from layercast import _native, logs
from layercast._asynchronous import in_thread
from layercast._native import Version
from layercast.checkpoint import Store
from layercast.closing import OfOneProcess
from layercast.errors import InvalidArgument
from layercast.progress import Progress, Told
from layercast.publisher import Published, Publisher
from layercast.recording import Recording
from layercast.report import Report
from layercast.tensor import TensorSpec


def buffer_specs(
    model: str | os.PathLike[str] | Recording,
    *,
    tp_rank: int = 0,
    tp_size: int = 1,
    quantization: str = "none",
    **options: Any,
) -> list[TensorSpec]:
    """The buffers that an engine's rank has for a model under a recipe: what :class:`Receiver` expects.

    ``model`` is a folder with a config.json, or what was recorded of a loader. Also takes ``power_of_two_scales`` and,
    of a rank of experts or of a pipeline's stage, ``ep_rank`` and the like. An engine that pads or transposes its weights
    knows its shapes itself.
    """
    known = known_options(options, _PARALLEL | {"power_of_two_scales"})
    specs = _native.buffer_specs(**rank_options(model, tp_rank, tp_size), quantization=quantization, **known)
    return [TensorSpec(*spec) for spec in specs]


class Receiver(OfOneProcess):
    """Takes versions into an engine's buffers, in place: their addresses stay, so that captured CUDA graphs do.

    Args:
        model: a folder with a config.json; or a :class:`layercast.Recording` of what the engine's own loader does.
        buffers: the engine's tensors by their kernel names ("model.layers.0.self_attn.qkv_proj.weight_scale"), torch's
            or writable numpy arrays, of any strides, on the CPU or on one CUDA device. :func:`buffer_specs` lists them;
            the first reload refuses a table that does not fit. They are kept, and asked around every commit where they
            are.
        tp_rank, tp_size, ep_rank, ep_size, pp_rank, pp_size: which part of the model this rank holds.
        quantization: "none", "fp8_per_channel", or another one of :func:`layercast.known_recipes`; "checkpoint": as the
            checkpoint's config.json says.
        commit: "staged", "undo" or "in_place" (docs/commit.md).
        noise: what becomes of noise that versions carry: "shared", the same on all engines; "per-engine"; "off".
        engine: this engine's name, the same on all its ranks, and of no other engine.
        channel: forces a data channel.
        timeout: seconds for a whole reload; ``peer_timeout``: of a publisher's silence.
        threads: for kernels and copies.
        buffer_limit: the most bytes that incomplete layers may hold; 0: no bound.
        relay: an endpoint at which this rank serves on what it takes.
        keep_source: keeps the source bytes of what it serves, so that the next version may come as what changed since;
            ``delta``: "auto", "always" or "never" (docs/delta.md).
        keys: a folder of ``layercast keygen``, by which publishers and relays admit this rank; ``secret``: a job's file
            instead; ``insecure``: neither, also where ``relay`` is beyond loopback. By default the environment's
            (``LAYERCAST_KEYS``, ``LAYERCAST_SECRET``).
        trust: a list of public keys of ``layercast keygen --sign``: a version that none of them has signed is refused. By
            default that of ``LAYERCAST_TRUST``. ``allow_unsigned``: nevertheless takes weights from paths and other
            engines, which nobody signs.

    Also takes ``power_of_two_scales``, ``requantize``, ``row_alignment``, ``column_alignment``, ``transposed`` and
    ``column_major``, for quantized layers. Raises InvalidArgument, Unsupported, NotFound.

    One call at a time. After a call that raises, the engine serves what it served before, or is ``torn``: which of the
    two depends on the commit policy.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Recording,
        *,
        buffers: Mapping[str, Any],
        tp_rank: int = 0,
        tp_size: int = 1,
        quantization: str = "none",
        **options: Any,
    ) -> None:
        logs.start()
        self._native = _native.Receiver(
            dict(buffers),
            **rank_options(model, tp_rank, tp_size),
            quantization=quantization,
            **known_options(options, _OPTIONS),
        )

    @property
    def version(self) -> Version | None:
        """What is served now; None before the first reload, and while torn."""
        return self._native.version

    @property
    def torn(self) -> bool:
        """Some buffers hold one version, and some another: no forward pass may run until a whole one is committed."""
        return self._native.torn

    def reload_weights(
        self,
        source: Any = None,
        *,
        lineage: str = "",
        step: int | None = None,
        is_checkpoint_format: bool = True,
        load_format: str = "auto",
        partial: bool = False,
        may_keep: Iterable[str] = (),
        allow_config_change: bool = False,
        clean: bool = False,
        config: str = "",
        on_progress: Callable[[Progress], None] | None = None,
        progress_bar: bool = False,
    ) -> Report:
        """Takes a version: stages it whole, commits it, and reads it back.

        Args:
            source: the endpoint of a publisher, or those of all ranks of a sharded trainer (a list, or separated by
                commas); a :class:`Publisher` or what its ``publish`` returned; a :class:`Store`; the path of a checkpoint;
                a dict or list of ``(name, tensor)``, or an iterator of them, which is walked once, on this thread, and should come in
                layer order. None: the last whole checkpoint that was loaded from a path.
            lineage, step: which of a publisher's or a store's versions; by default its newest.
            is_checkpoint_format: False: the tensors have the names, shapes and dtypes of the buffers.
            partial: the tensors may be a part of the model; layers that get none keep what they serve.
            may_keep: with ``partial``, the layers that may be left out; empty: any.
            clean: without the noise that a publisher's version carries.
            config: of an iterator, the text of the model's config.json.

        Raises what an iterator raises, with its traceback, and every class of :mod:`layercast.errors`. The old version
        stays under the policy "staged".
        """
        options = {"partial": partial, "may_keep": list(may_keep), "allow_config_change": allow_config_change}
        options["clean"] = clean
        if config:
            options["config"] = config
        with Told(on_progress, progress_bar) as tell:
            return self._take(tell, source, lineage, step, is_checkpoint_format, load_format, options)

    def stage(
        self,
        source: Any,
        *,
        lineage: str = "",
        step: int | None = None,
        is_checkpoint_format: bool = True,
        attempt: int = 0,
        on_progress: Callable[[Progress], None] | None = None,
        **options: Any,
    ) -> Report:
        """The first phase of a reload alone, for engines of several ranks: stage on all of them, then commit on all.

        Takes what :meth:`reload_weights` takes. ``attempt`` grows with every reload of the engine and is the same on all
        its ranks; 0: the receiver counts. The engine may go on generating meanwhile. Under the policies "undo" and
        "in_place" only the plan is made now, and :meth:`commit` receives. Raises as :meth:`reload_weights`.
        """
        options = known_options(options, {"partial", "may_keep", "allow_config_change", "clean", "config"})
        options |= {"stage_only": True, "attempt": attempt}
        with Told(on_progress, False) as tell:
            return self._take(tell, source, lineage, step, is_checkpoint_format, "auto", options)

    def prepare(self) -> Report:
        """The last chance to refuse before any rank commits. Raises FailedPrecondition if nothing is staged."""
        return Report(self._native.prepare())

    def commit(self) -> Report:
        """Writes what is staged into the buffers, between two forward passes.

        Raises FailedPrecondition if nothing is staged, or if the engine has moved a buffer. Under "staged", what is
        staged stays after a failure, to be committed again.
        """
        return Report(self._native.commit())

    def abort(self) -> Report:
        """Drops what is staged or half received, and takes back what was half written. Nothing if there is none."""
        return Report(self._native.abort())

    def roll_back(self) -> bool:
        """Puts back what the latest commit overwrote; False if the policy cannot, and the rank is then ``torn``."""
        return self._native.roll_back()

    def _take(
        self,
        tell: Any,
        source: Any,
        lineage: str,
        step: int | None,
        is_checkpoint_format: bool,
        load_format: str,
        options: dict[str, Any],
    ) -> Report:
        if source is None:
            return Report(self._native.reload_from_origin(tell))
        if isinstance(source, Published):
            version = source.version
            return self._from_publishers(tell, [source.endpoint], version.lineage, version.step, options)
        if isinstance(source, Store):
            return Report(self._native.reload_from_store(tell, source.path, lineage, step, **options))
        if isinstance(source, Publisher):
            return self._from_publishers(tell, [source.endpoint], lineage, step, options)
        if isinstance(source, str) and "://" in source:
            return self._from_publishers(tell, source.split(","), lineage, step, options)
        if isinstance(source, (str, os.PathLike)):
            path = os.fspath(source)
            return Report(self._native.reload_from_path(tell, path, load_format, is_checkpoint_format, **options))
        if isinstance(source, Mapping):
            source = list(source.items())
        if isinstance(source, (list, tuple)) and source and all(isinstance(item, str) for item in source):
            return self._from_publishers(tell, list(source), lineage, step, options)
        if isinstance(source, (list, tuple)):
            return Report(self._native.reload_from_list(tell, list(source), is_checkpoint_format, **options))
        if self.version is None:  # nothing says yet which tensors will come: all of them are awaited
            return Report(self._native.reload_from_list(tell, list(source), is_checkpoint_format, **options))
        return Report(self._native.reload_from_iterator(source, is_checkpoint_format, **options))

    def _from_publishers(
        self, tell: Any, endpoints: list[str], lineage: str, step: int | None, options: dict[str, Any]
    ) -> Report:
        return Report(self._native.reload_from_publishers(tell, endpoints, lineage, step, **options))

    async def reload_weights_async(self, *arguments: Any, **options: Any) -> Report:
        """:meth:`reload_weights` on a thread, for asyncio. Cancelling the task gives the reload up."""
        return await in_thread(functools.partial(self.reload_weights, *arguments, **options), self.cancel)

    def cancel(self) -> None:
        """Gives up the reload that is under way, which raises Cancelled; may be called from any thread."""
        self._native.cancel()

    def verify(self) -> None:
        """Reads the served bytes back; raises Corrupt if they are not those that were staged."""
        self._native.verify()

    def served_digest(self) -> str:
        """The digest of all buffers' names and bytes: 32 hexadecimal digits."""
        return self._native.served_digest()

    @property
    def report(self) -> Report:
        """Of the latest reload, also of one that failed."""
        return Report(self._native.report_json)

    def close(self) -> None:
        """Lets the buffers go."""
        self._native.close()


_LAYOUT = {"power_of_two_scales", "requantize", "row_alignment", "column_alignment", "transposed", "column_major"}
_PARALLEL = {"ep_rank", "ep_size", "pp_rank", "pp_size"}
_KEYS = {"keys", "secret", "insecure", "trust", "allow_unsigned"}
_HOW = {"commit", "engine", "channel", "timeout", "peer_timeout", "threads", "buffer_limit", "relay"} | {"keep_source", "delta", "noise"} | _KEYS
_OPTIONS = _LAYOUT | _PARALLEL | _HOW


def rank_options(model: str | os.PathLike[str] | Recording, tp_rank: int, tp_size: int) -> dict[str, Any]:
    """The model and this rank's part of it, as the extension reads them."""
    known: dict[str, Any] = {"tp_rank": tp_rank, "tp_size": tp_size}
    return known | ({"recorded": model.native()} if isinstance(model, Recording) else {"directory": os.fspath(model)})


def known_options(options: dict[str, Any], names: set[str]) -> dict[str, Any]:
    for name in options:
        if name not in names:
            raise InvalidArgument(f"no option '{name}': expected one of {', '.join(sorted(names))}")
    paths = {name: os.fspath(options[name]) for name in ("keys", "secret", "trust") if name in options}
    return options | paths
