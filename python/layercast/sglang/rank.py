"""One rank's side of an update: a receiver that stages versions beside the live weights of one model.

All that takes long runs on a thread of its own (host/staging.py) while the scheduler goes on with batches. Every call is
made on the scheduler's thread.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import torch

from layercast.errors import FailedPrecondition
from layercast.host.receivers import Receivers
from layercast.host.staging import Staging, named
from layercast.offered import endpoints_of, offered
from layercast.sglang.adoption import Adoption, adopt
from layercast.sglang.derived import refresh_derived
from layercast.sglang.device import wait_for
from layercast.sglang.refusals import refuse_shared_or_derived
from layercast.sglang.reloaded import Made, copy_made, made, prove_computed
from layercast.sglang.twin import recorded, twin_of
from layercast.tensor import TensorSpec

logger = logging.getLogger("layercast.sglang")

_ATTRIBUTE = "_layercast_rank"


def rank_of(model: Any) -> Rank:
    """The one of this model, which both doors share: there are no two receivers of one memory."""
    rank = known_rank(model)
    if rank is None:
        rank = Rank(model)
        object.__setattr__(model, _ATTRIBUTE, rank)
    return rank


def known_rank(model: Any) -> Rank | None:
    rank: Rank | None = getattr(model, _ATTRIBUTE, None)
    return rank


class Rank:
    """What one rank has staged, and what it serves. See Staging for its states."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._specs: tuple[TensorSpec, ...] = ()
        self._adoption: Adoption | None = None
        self._receiver: Receivers | None = None
        self._made: Made | None = None  # of the version that is staged
        self._staging = Staging()
        self._adoption_seconds = 0.0
        self.attempt = 0
        self.engine = ""
        self.torn = False
        #: SGLang's session of begin_weight_update and end_weight_update holds kernel bytes of ours (hooks.py).
        self.wrote_in_session = False

    def newest(self, endpoint: str, lineage: str, step: int | None) -> tuple[str, int]:
        """The lineage and step that a publisher has. Raises as :func:`layercast.offered.offered`."""
        refuse_shared_or_derived(self._model)
        version = offered(endpoints_of(endpoint), lineage=lineage, step=step).version
        return version.lineage, version.step

    def stage(self, endpoint: str, lineage: str, step: int, timeout: float) -> None:
        """Starts to stage a version. Fits the receiver before, if other tensors come than last time."""
        self.abort()
        found = offered(endpoints_of(endpoint), lineage=lineage, step=step)
        self._fit(found.specs, timeout)
        assert self._receiver is not None
        self._staging.start(self._receiver, endpoints_of(endpoint), found.version, self.attempt)

    def prepare(self, wait: float) -> None:
        """Waits so many seconds for a staged version. Raises what staging raised, FailedPrecondition without one, and
        where SGLang has moved the memory to be written."""
        refuse_shared_or_derived(self._model)
        self._staging.wait(wait)
        receiver = self._staging.require_staged()
        assert self._adoption is not None
        moved = self._adoption.moved()
        if moved:
            raise FailedPrecondition(f"SGLang has moved '{moved}' since: stage the version again")
        receiver.prepare()

    def make(self) -> None:
        """After all ranks have prepared: SGLang's code makes kernel tensors of the layers that are not adopted, beside
        the live ones. On all ranks at once, since it may communicate."""
        assert self._receiver is not None and self._adoption is not None
        if self._made is None:
            self._made = made(self._model, self._adoption, self._receiver.staged)

    def commit(self) -> None:
        """Writes what is staged. No forward pass may be under way, so the device's queues are waited for: the overlap
        scheduler's last batch may still be in one."""
        assert self._receiver is not None and self._made is not None
        device = next(self._model.parameters()).device
        wait_for(device)
        self.torn = True
        self._receiver.commit()
        copy_made(self._made)
        refresh_derived(self._model)
        wait_for(device)
        self.torn = False
        self._made = None
        self._staging.done()

    def abort(self) -> None:
        """Drops what is staged, or on its way."""
        self._made = None
        self._staging.abort()

    def verify(self) -> None:
        """Reads the served bytes back. Raises Corrupt, FailedPrecondition."""
        if self._receiver is None or self._receiver.version is None:
            raise FailedPrecondition("expected a version that was committed, got none yet")
        self._receiver.verify()

    def status(self) -> dict[str, Any]:
        receiver, adoption = self._receiver, self._adoption
        version = receiver.version if receiver is not None else None
        return {
            **self._staging.status(),
            "torn": self.torn or (receiver is not None and receiver.torn),
            "version": named(version),
            "recipe": adoption.recipe if adoption else None,
            "layers": len(adoption.layers) if adoption else 0,
            "reloaded": {layer.path: layer.why for layer in adoption.reloaded()} if adoption else {},
            "self_checks": adoption.checks if adoption else 0,
            "adoption_seconds": self._adoption_seconds,
        }

    def _fit(self, specs: tuple[TensorSpec, ...], timeout: float) -> None:
        """Makes a receiver that takes these tensors; keeps the one that does already. No batch runs meanwhile."""
        if self._receiver is not None and specs == self._specs and self._adoption and not self._adoption.moved():
            return
        from sglang.srt.runtime_context import get_parallel

        began = time.perf_counter()
        twin = twin_of(self._model)
        adoption = adopt(self._model, twin, recorded(twin, specs, next(self._model.parameters()).device))
        prove_computed(self._model, adoption)
        receiver = Receivers(
            adoption.recording,
            adoption.buffers,
            adoption.beside,
            quantization=adoption.recipe,
            tp_rank=get_parallel().tp_rank,
            tp_size=get_parallel().tp_size,
            engine=self.engine,
            timeout=timeout,
            threads=max(1, torch.get_num_threads()),
        )
        if self._receiver is not None:
            self._receiver.close()
        self._specs, self._adoption, self._receiver = specs, adoption, receiver
        self._adoption_seconds = time.perf_counter() - began
        reloaded = adoption.reloaded()
        logger.info(
            "%d layers adopted, %d reloaded by SGLang's own code%s; %d self checks, %.2f s",
            len(adoption.layers) - len(reloaded),
            len(reloaded),
            f" ({reloaded[0].path}: {reloaded[0].why})" if reloaded else "",
            adoption.checks,
            self._adoption_seconds,
        )
