"""The worker's side of vLLM's weight transfer: a backend that stages versions beside the live weights.

Everything that takes long runs on a thread of its own while the worker goes on generating; the calls that vLLM makes
between two steps start it, ask for it, and copy what is staged. They are those of :meth:`LayercastEngine.answer`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from layercast._native import Version
from layercast.errors import Error, FailedPrecondition, Internal, InvalidArgument, of_code
from layercast.offered import endpoints_of, offered
from layercast.host.receivers import Receivers
from layercast.host.recorder import record
from layercast.host.staging import Staging, named
from layercast.tensor import TensorSpec
from layercast.vllm.adoption import Adoption, adopt
from layercast.vllm.cold import differences
from layercast.vllm.load_time import load_time, tensors_of
from layercast.vllm.reloaded import Made, copy_made, made, prove_computed, refresh_derived

logger = logging.getLogger("layercast.vllm")


@dataclass
class InitInfo(WeightTransferInitInfo):
    """``endpoint``: of the trainer's publishers, separated by commas, for updates that name none."""

    endpoint: str = ""
    lineage: str = ""
    timeout: float = 300.0


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """What a step of an update does: :meth:`LayercastEngine.answer`. By default, all that precedes the commit."""

    op: str = "receive"
    arguments: dict[str, Any] = field(default_factory=dict)


class LayercastEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """One worker's engine. Its state is ``idle``, ``staging``, ``staged`` or ``failed``."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False  # its buffers are those of the served model
    defers_processing = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._info = InitInfo()
        self._specs: tuple[TensorSpec, ...] = ()
        self._adoption: Adoption | None = None
        self._receiver: Receivers | None = None
        self._made: Made | None = None  # of the version that is staged
        self._staging = Staging()
        self._torn = False
        self._differences: list[dict[str, Any]] = []  # as the latest verify found them
        self._attempt = self._committed = 0  # the sync that is under way, and the latest that was committed

    # ---- vLLM's calls ----

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Adopts the model's buffers, where a publisher is there to say which tensors will come."""
        self._info = init_info
        if init_info.endpoint:
            self._fit(offered(init_info.endpoint, lineage=init_info.lineage, timeout=init_info.timeout).specs)

    def start_weight_update(self) -> None:
        self._abort()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        self.answer(update_info.op, **update_info.arguments)

    def finish_weight_update(self) -> None:
        if self._staging.state != "idle":
            self._commit()

    def drain_pending(self) -> None:
        self._staging.wait()

    def shutdown(self) -> None:
        if self._receiver is not None:
            self._abort()
            self._receiver.close()
            self._receiver = None

    # ---- Layercast's ----

    def answer(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Does one step, on every rank. Returns the rank's state.

        ``stage`` (endpoint, lineage, step, attempt): starts to stage a version, and returns at once. ``state``: where
        that is. ``prepare``: raises unless a version is staged. ``make``, once all ranks have prepared: vLLM's code
        makes the layers that are not adopted, beside the live ones. ``commit`` (attempt): writes the version, between
        two forward passes; nothing if that attempt is committed already. ``abort``: drops it. ``receive``: stages,
        prepares and makes, and returns when that is done. ``verify`` (model): reads the served bytes back, and holds
        them against a cold load of that checkpoint, if one is named.

        Raises a subclass of :class:`layercast.Error`; the weights that are served are then the old ones, unless the
        state says ``torn``.
        """
        if op not in _OPS:
            raise InvalidArgument(f"expected one of {', '.join(_OPS)}, got '{op}'")
        with set_current_vllm_config(self.vllm_config):
            _OPS[op](self, **arguments)
        return self.status()

    def _stage(self, endpoint: str = "", lineage: str = "", step: int | None = None, attempt: int = 0) -> None:
        self._refuse_if_asleep()
        self._abort()
        publishers = endpoints_of(endpoint or self._info.endpoint)
        if publishers == [""]:
            raise InvalidArgument("expected the endpoint of a publisher, with the update or at init, got none")
        lineage = lineage or self._info.lineage
        found = offered(publishers, lineage=lineage, step=step, timeout=self._info.timeout)
        self._fit(found.specs)
        assert self._receiver is not None
        self._attempt = attempt
        self._staging.start(self._receiver, publishers, found.version, attempt)

    def _prepare(self) -> None:
        self._refuse_if_asleep()
        self._staging.require_staged().prepare()

    def _make(self) -> None:
        """On all ranks at once: vLLM's code may communicate."""
        self._prepare()
        assert self._receiver is not None and self._adoption is not None
        if self._made is None:
            self._made = made(self.model, self._adoption, self._receiver.staged)

    def _receive(self, **arguments: Any) -> None:
        def stage() -> None:
            self._stage(**arguments)
            self.drain_pending()
            self._prepare()

        if self._together(stage):
            self._together(self._make)

    def _together(self, step: Callable[[], None]) -> bool:
        """Whether all ranks made the step, within one call of vLLM's. If one raised, all drop what is staged."""
        try:
            step()
            mine: Error | None = None
        except Error as error:
            mine = error
        except Exception as error:  # noqa: BLE001  vLLM's code: the other ranks wait for an answer
            mine = Internal(repr(error))
        said = _of_all_ranks(mine)
        failed = [(rank, error) for rank, error in enumerate(said) if error is not None]
        if not failed:
            return True
        self._abort()
        # vLLM's executor stops reading at the first rank that raised. What later ranks answered is then taken for the
        # answer to the next call, and every call after it is answered one too late. So the last rank alone raises.
        if self.parallel_config.rank == len(said) - 1:
            rank, (code, message) = failed[0]
            raise of_code(code)(f"rank {rank}: {message}")
        return False

    def _commit(self, attempt: int = 0) -> None:
        if attempt and attempt == self._committed:
            return  # another rank had to try again
        self._make()
        assert self._receiver is not None and self._made is not None
        self._torn = True
        with torch.no_grad():
            self._receiver.commit()
            copy_made(self._made)
            refresh_derived(self.model, self.model_config.dtype)
        self._torn = False
        self._made = None
        self._staging.done()
        self._committed = self._attempt

    def _abort(self) -> None:
        self._made = None
        self._staging.abort()

    def _ask(self) -> None:
        """Only asks."""

    def _verify(self, model: str = "") -> None:
        if self._receiver is None or self._adoption is None or self._receiver.version is None:
            raise FailedPrecondition("expected a version that was committed, got none yet")
        self._receiver.verify()
        self._differences = differences(self.model, self._adoption, model, *self._part()) if model else []

    def _part(self) -> tuple[int, int]:
        """This rank's number among the engine's, and how many there are."""
        return self.parallel_config.rank % self.parallel_config.world_size, self.parallel_config.world_size

    def _fit(self, specs: tuple[TensorSpec, ...]) -> None:
        """Makes a receiver that takes these tensors; keeps the one that does already."""
        if specs == self._specs and self._receiver is not None:
            return
        began = time.perf_counter()
        with load_time(self.model):
            loaded = record(self.model.load_weights, tensors_of(self.model), specs)
        adoption = adopt(self.model, loaded)
        prove_computed(self.model, adoption)
        tp_rank, tp_size = self._part()
        receiver = Receivers(
            adoption.recording,
            adoption.buffers,
            adoption.beside,
            quantization=adoption.recipe,
            tp_rank=tp_rank,
            tp_size=tp_size,
            engine=f"vllm-{self.vllm_config.instance_id}-{self.parallel_config.data_parallel_index}",
            timeout=self._info.timeout,
            threads=max(1, torch.get_num_threads()),
        )
        if self._receiver is not None:
            self._receiver.close()
        self._specs, self._adoption, self._receiver = specs, adoption, receiver
        reloaded = adoption.reloaded()
        logger.info(
            "%d layers adopted, %d reloaded by vLLM's own code%s; %d self checks, %.2f s",
            len(adoption.layers) - len(reloaded),
            len(reloaded),
            f" ({reloaded[0].path}: {reloaded[0].why})" if reloaded else "",
            adoption.checks,
            time.perf_counter() - began,
        )

    def _refuse_if_asleep(self) -> None:
        from layercast.vllm.sleep import asleep

        if asleep():
            raise FailedPrecondition("the engine is asleep and its weights are unmapped: wake it up first")

    @property
    def version(self) -> Version | None:
        """What is served; None if it did not come from Layercast."""
        return None if self._receiver is None else self._receiver.version

    def status(self) -> dict[str, Any]:
        """This rank's state, as JSON has it."""
        receiver, adoption = self._receiver, self._adoption
        version = self.version
        return {
            "rank": self.parallel_config.rank,
            **self._staging.status(),
            "torn": self._torn or (receiver is not None and receiver.torn),
            "version": named(version),
            "report": receiver.report.to_dict() if receiver is not None else None,
            "differences": self._differences,
            "recipe": adoption.recipe if adoption else None,
            "adopted": [layer.path for layer in adoption.layers if layer.adopted] if adoption else [],
            "reloaded": {layer.path: layer.why for layer in adoption.reloaded()} if adoption else {},
        }


def _of_all_ranks(mine: Error | None) -> list[tuple[str, str] | None]:
    """(code, message) of every rank of this engine, by rank; None: it has none. A collective."""
    from vllm.distributed.parallel_state import get_world_group

    said = None if mine is None else (mine.code, str(mine))
    group = get_world_group()
    everybody: list[tuple[str, str] | None] = [None] * group.world_size
    torch.distributed.all_gather_object(everybody, said, group=group.cpu_group)
    return everybody


_OPS = {
    "stage": LayercastEngine._stage,
    "state": LayercastEngine._ask,
    "prepare": LayercastEngine._prepare,
    "make": LayercastEngine._make,
    "commit": LayercastEngine._commit,
    "abort": LayercastEngine._abort,
    "receive": LayercastEngine._receive,
    "verify": LayercastEngine._verify,
}
