"""LoRA adapters on the engine's side, on one rank: loads them into slots, memory that the engine has captured once."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layercast import _native, logs
from layercast._asynchronous import in_thread
from layercast._native import Version
from layercast.closing import OfOneProcess
from layercast.errors import InvalidArgument
from layercast.publisher import Published, Publisher
from layercast.receiver import known_options, rank_options
from layercast.recording import Recording
from layercast.report import Report
from layercast.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class AdapterPart:
    """A low-rank term of a layer's output: its rows from ``first_row`` on get ``scale * B (A x)``.

    A fused layer has a part for each ``shard`` ("q_proj"; "" if it is the layer's only one). ``a`` is
    ``[max_rank, columns]``, or ``[tokens, max_rank]`` of an embedding; ``b`` is ``[rows, max_rank]``. Of experts, both have
    one more dimension before these.
    """

    layer: str
    shard: str
    first_row: int
    a: TensorSpec
    b: TensorSpec


@dataclass(frozen=True, slots=True)
class AdapterTerm:
    """What a slot adds to one part, or to one ``expert`` of it. ``a``: the name of the part's tensor; ``rank`` 0: nothing.

    ``scale`` multiplies ``B (A x)``, in fp32: it is not in the slot's tensors.
    """

    a: str
    expert: int
    rank: int
    scale: float


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """What a slot holds.

    Args:
        name: in its version; "" if it came from a folder.
        version: of the adapter alone, by its own digest.
        base: the version of the base that it was trained on, if it says so.
        terms: in the order of the parts, then by expert.
        modules: how many the adapter has, on all ranks; ``elsewhere``: of them, on other stages of a pipeline.
        skipped: tensors that change nothing (copies of base weights).
        warnings: what PEFT would warn of.
        zero_modules: how many have a B of zeros, which is what an untrained adapter looks like.
        digest: of the slot's bytes on this rank, with ranks and scales.
    """

    name: str
    version: Version
    base: Version | None
    terms: list[AdapterTerm]
    modules: int
    elsewhere: int
    skipped: list[str]
    warnings: list[str]
    zero_modules: int
    digest: str
    report: Report


def adapter_parts(
    model: str | os.PathLike[str] | Recording,
    *,
    max_rank: int = 16,
    modules: Iterable[str] = (),
    dtype: str = "BF16",
    tp_rank: int = 0,
    tp_size: int = 1,
    **options: Any,
) -> list[AdapterPart]:
    """What a slot of a rank consists of: the tensors that :class:`AdapterReceiver` expects of each.

    ``modules`` are the layers that adapters may change, as paths, last segments or shards; by default all. Also takes
    ``ep_rank`` and the like. Raises InvalidArgument.
    """
    known = rank_options(model, tp_rank, tp_size) | known_options(options, _PARALLEL)
    parts = _native.adapter_parts(**known, max_rank=max_rank, modules=list(modules), dtype=dtype)
    return [AdapterPart(layer, shard, row, TensorSpec(*a), TensorSpec(*b)) for layer, shard, row, a, b in parts]


class AdapterReceiver(OfOneProcess):
    """Fills slots with LoRA adapters, in place: a slot's addresses stay, so that captured CUDA graphs do.

    Args:
        model: a folder with a config.json; or a :class:`layercast.Recording` of what the engine's own loader does, which
            takes no adapters of the embedding.
        slots: of each slot the engine's tensors by name, as :func:`adapter_parts` says them, of any strides.
        max_rank: the largest rank of a module, 1 to 512.
        modules: layers that adapters may change; by default all.
        dtype: of the factors: "BF16", "F16" or "F32". Adapters of another one are cast.
        served: the engine's tensors of the base by their kernel names, if it has them. Copies of base weights, which PEFT
            saves beside adapters of the embedding and the head, are compared with them, and an adapter is refused whose
            copies differ. Without it a warning says that nobody compared them.
        tp_rank, tp_size, ep_rank, ep_size, pp_rank, pp_size: which part of the model this rank holds.

    Also takes ``engine``, ``channel``, ``timeout``, ``peer_timeout`` and ``threads``, as :class:`layercast.Receiver`. Raises
    InvalidArgument, naming tensor, expected and got. One call at a time.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Recording,
        *,
        slots: Sequence[Mapping[str, Any]],
        max_rank: int = 16,
        modules: Iterable[str] = (),
        dtype: str = "BF16",
        served: Mapping[str, Any] | None = None,
        tp_rank: int = 0,
        tp_size: int = 1,
        **options: Any,
    ) -> None:
        logs.start()
        known = rank_options(model, tp_rank, tp_size) | known_options(options, _PARALLEL | _HOW)
        if served is not None:
            known["served"] = dict(served)
        self._native = _native.AdapterReceiver(
            [dict(slot) for slot in slots], **known, max_rank=max_rank, modules=list(modules), dtype=dtype
        )

    def load(
        self,
        slot: int,
        *,
        path: str | os.PathLike[str] | None = None,
        publishers: Publisher | Published | str | Iterable[str] | None = None,
        name: str = "",
        lineage: str = "",
        step: int | None = None,
        attempt: int = 0,
    ) -> LoadedAdapter:
        """Fills a slot, and reads it back. What lies beyond the adapter's ranks is zero; tensors of parts that it does not
        have stay as they are. No forward pass may read the slot meanwhile, nor after a load that raised.

        Args:
            path: a PEFT folder.
            publishers: in its place, a publisher, what its ``publish_adapters`` returned (then exactly that version), or
                the endpoints of all ranks of a sharded trainer.
            name: of the adapter in the version; "": the only one.
            lineage, step: which of a publisher's versions; by default its newest.
            attempt: grows with every load of the engine and is the same on all its ranks; 0: the receiver counts.

        Raises, naming the module or tensor: Unsupported for what an adapter may be but is not served, InvalidArgument for
        what does not fit the model, NotFound, and what a receiver raises.
        """
        options: dict[str, Any] = {"name": name, "lineage": lineage, "attempt": attempt}
        if step is not None:
            options["step"] = step
        if path is not None:
            options["path"] = os.fspath(path)
        if isinstance(publishers, Published):
            version = publishers.version
            options |= {"publishers": [publishers.endpoint], "lineage": version.lineage, "step": version.step}
        elif isinstance(publishers, Publisher):
            options["publishers"] = [publishers.endpoint]
        elif publishers is not None:
            options["publishers"] = publishers.split(",") if isinstance(publishers, str) else list(publishers)
        if (path is None) == (publishers is None):
            raise InvalidArgument("an adapter: expected a folder (path) or publishers, got " +
                                  ("neither" if path is None else "both"))  # fmt: skip
        return _loaded(self._native.load(slot, **options))

    async def load_async(self, slot: int, **options: Any) -> LoadedAdapter:
        """:meth:`load` on a thread, for asyncio. Cancelling the task gives the load up."""
        return await in_thread(functools.partial(self.load, slot, **options), self.cancel)

    def cancel(self) -> None:
        """Gives up the load that is under way, which raises Cancelled; may be called from any thread."""
        self._native.cancel()

    def close(self) -> None:
        """Lets the slots go."""
        self._native.close()


def _loaded(native: _native.LoadedAdapter) -> LoadedAdapter:
    return LoadedAdapter(
        name=native.name,
        version=native.version,
        base=native.base,
        terms=[AdapterTerm(*term) for term in native.terms],
        modules=native.modules,
        elsewhere=native.elsewhere,
        skipped=native.skipped,
        warnings=native.warnings,
        zero_modules=native.zero_modules,
        digest=native.digest,
        report=Report(native.report_json),
    )


_PARALLEL = {"ep_rank", "ep_size", "pp_rank", "pp_size"}
_HOW = {"engine", "channel", "timeout", "peer_timeout", "threads"}
