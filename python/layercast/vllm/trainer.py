"""The trainer's side of vLLM's weight transfer: each rank publishes the shards that it holds, and nothing is gathered.

A trainer that uses vLLM's own interfaces changes the class of its init info, and nothing else::

    trainer = WeightTransferTrainerFactory.trainer_init(
        LayercastTrainerInfo(rank=rank), client=DoorClient("http://127.0.0.1:8000"), source=ModuleSource(policy)
    )
    trainer.send_weights()
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vllm.distributed.weight_transfer.base import ParamMeta, Shard, TrainerInitInfo, TrainerWeightTransferEngine

from layercast.controller import Controller
from layercast.errors import InvalidArgument
from layercast.publisher import Publisher
from layercast.trainer import endpoints_of_all


@dataclass
class LayercastTrainerInfo(TrainerInitInfo):
    """``bind``: where this rank's publisher listens; port 0 picks one. ``lineage``: the run's name."""

    backend: ClassVar[str] = "layercast"
    bind: str = "tcp://127.0.0.1:0"
    lineage: str = "policy"
    world_size: int = 1


class DoorClient:
    """A client of vLLM servers that have Layercast's door: serving goes on while a version is staged.

    With any other client of vLLM's four calls, the server stands still from the first byte to the commit.
    """

    def __init__(self, *servers: str, api_key: str = "", pause_mode: str = "", all_or_none: bool = True) -> None:
        self._controller = Controller(servers, api_key=api_key)
        self._options: dict[str, Any] = {"pause_mode": pause_mode, "all_or_none": all_or_none}

    def reload(self, endpoints: list[str]) -> None:
        """Raises a subclass of :class:`layercast.Error`; servers then serve what they did."""
        self._controller.reload(endpoints, **self._options)

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Nothing: a server's ranks adopt their buffers with the first version."""


class LayercastTrainer(TrainerWeightTransferEngine[LayercastTrainerInfo]):
    """One trainer rank. Every rank publishes; rank 0 then tells the servers."""

    init_info_cls = LayercastTrainerInfo

    def __init__(self, info: LayercastTrainerInfo, client: Any, source: Any) -> None:
        super().__init__(client=client, source=source, is_sender=info.rank == 0, rank=info.rank)
        self._world_size = info.world_size
        self._step = 0
        self._lineage = info.lineage
        self._publisher = Publisher(info.bind, lineage=info.lineage)

    @classmethod
    def trainer_init(cls, init_info: LayercastTrainerInfo, *, client: Any, source: Any = None) -> Self:
        if source is None or not (source.implements_iter_local() or source.implements_iter_full()):
            raise InvalidArgument("expected a source with iter_local or iter_full, got none")
        trainer = cls(init_info, client, source)
        if trainer.is_sender:
            client.init_weight_transfer_engine({"lineage": init_info.lineage})
        return trainer

    def send_weights(self) -> None:
        """Publishes and reloads. Returns, on rank 0, once the servers serve the version; a collective.

        Raises a subclass of :class:`layercast.Error`, or what the client raises; servers then serve what they did.
        """
        self._step += 1
        with self._published() as endpoints:
            if not self.is_sender:
                return
            if hasattr(self.client, "reload"):
                self.client.reload(endpoints)
            else:
                self._by_four_calls(endpoints)

    def shutdown(self) -> None:
        self._publisher.close()

    def _published(self) -> _Published:
        plan = plan_of(self.source.metadata, self._world_size, self.source.implements_iter_local())
        mine = [piece for piece in plan if piece.rank == self.rank]
        ranks = sorted({piece.rank for piece in plan})
        version = None
        if mine:
            version = self._publisher.publish(
                list(self._tensors(mine)), step=self._step, rank=(ranks.index(self.rank), len(ranks))
            )
        return _Published(version, endpoints_of_all(version))

    def _tensors(self, mine: list[Piece]) -> Iterator[tuple[Any, ...]]:
        wanted = {piece.name: piece for piece in mine}
        local = self.source.implements_iter_local()
        for name, tensor in self.source.iter_local() if local else self.source.iter_full():
            if piece := wanted.get(name):
                part = (piece.whole, piece.offsets)
                yield (name, tensor) if tuple(tensor.shape) == piece.whole else (name, tensor, part)

    def _by_four_calls(self, endpoints: list[str]) -> None:
        source = {"endpoint": ",".join(endpoints), "lineage": self._lineage, "step": self._step}
        self.client.start_weight_update()
        try:
            self.client.update_weights({"op": "receive", "arguments": source})
        except Exception:
            # Ends vLLM's session on the ranks that did not raise. The one that did has none, and says so.
            with contextlib.suppress(Exception):
                self.client.finish_weight_update()
            raise
        self.client.finish_weight_update(f"{self._lineage}@{self._step}")


class _Published:
    """A version of this rank until the servers have it."""

    def __init__(self, version: Any, endpoints: list[str]) -> None:
        self._version = version
        self._endpoints = endpoints

    def __enter__(self) -> list[str]:
        return self._endpoints

    def __exit__(self, *_: object) -> None:
        """Every rank withdraws its part once rank 0 is done."""
        import torch.distributed as distributed

        if distributed.is_available() and distributed.is_initialized():
            distributed.barrier()
        if self._version is not None:
            self._version.withdraw()


@dataclass(frozen=True)
class Piece:
    """What one rank publishes of one tensor."""

    rank: int
    name: str
    whole: tuple[int, ...]
    offsets: tuple[int, ...]


def plan_of(metadata: list[ParamMeta], world_size: int, local: bool) -> list[Piece]:
    """Which rank publishes which part of each tensor: of replicas one, so that the ranks share what all of them hold.

    ``local``: ranks hold the shards that the metadata says; otherwise each owner has whole tensors.
    """
    pieces = []
    for index, meta in enumerate(metadata):
        owners = tuple(range(world_size)) if meta.owners is None else meta.owners
        if not local or meta.placements is None:
            rank = owners[index % len(owners)]
            pieces.append(Piece(rank, meta.name, meta.shape, (0,) * len(meta.shape)))
            continue
        for position, rank in enumerate(owners):
            offsets = _offsets(meta, position)
            if offsets is not None:
                pieces.append(Piece(rank, meta.name, meta.shape, offsets))
    return pieces


def _offsets(meta: ParamMeta, position: int) -> tuple[int, ...] | None:
    """Where the shard of the owner at ``position`` of the mesh begins; None: it is empty, or another replica's."""
    begin, extent = [0] * len(meta.shape), list(meta.shape)
    rest, mesh = position, list(meta.mesh_shape or ())
    for axis, placement in enumerate(meta.placements or ()):
        below = math.prod(mesh[axis + 1 :])
        coordinate, rest = divmod(rest, below)
        if not isinstance(placement, Shard):
            if coordinate:
                return None
            continue
        chunk = math.ceil(extent[placement.dim] / mesh[axis])
        first = min(coordinate * chunk, extent[placement.dim])
        begin[placement.dim] += first
        extent[placement.dim] = min(chunk, extent[placement.dim] - first)
    return None if 0 in extent else tuple(begin)
