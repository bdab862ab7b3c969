"""Models of Megatron-core, as the tensors that Hugging Face's checkpoints have. Users have it as ``layercast.megatron``.

    published = layercast.megatron.publish(publisher, model, "policy", step=step)

Every rank publishes the rows and columns that it holds, and nothing is gathered: a rank's query, key and value rows are
whole groups, and its half of fc1 is a part of gate and one of up. What several ranks hold alike is published by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layercast.errors import FailedPrecondition

if TYPE_CHECKING:
    from layercast.publisher import Published, Publisher
    from layercast.trainer.megatron_reader import Part, Ranks


def publish(publisher: Publisher, model: Any, config: Any, *, step: int, **options: Any) -> Published | None:
    """Publishes this rank's part of a version; None on a rank that has none. Called on all ranks: where torch.distributed
    runs, they tell each other who has something. ``options`` are those of :meth:`layercast.Publisher.publish`."""
    import torch.distributed as dist

    parts = shards(model, config, dtype=options.pop("dtype", None), ranks=options.pop("ranks", None))
    has = [bool(parts)]
    rank = 0
    if dist.is_available() and dist.is_initialized():
        rank, has = dist.get_rank(), [False] * dist.get_world_size()
        dist.all_gather_object(has, bool(parts))
    if not parts:
        return None
    return publisher.publish(parts, step=step, rank=(sum(has[:rank]), sum(has)), **options)


def shards(model: Any, config: Any, *, dtype: Any = None, ranks: Ranks | None = None) -> list[Part]:
    """This rank's parts, as views of the parameters where these have the dtype that is asked for.

    Args:
        model: a ``GPTModel``, or the list of chunks of an interleaved pipeline; also within DDP and Float16Module.
        config: of the same model in Hugging Face's form: a folder, the dict of config.json, or a transformers config.
        dtype: of floating-point tensors; by default what ``config`` says.
        ranks: where this process stands, if not where Megatron's ``parallel_state`` says.

    Raises Unsupported, naming it, for a parameter or a family that is not known here, and FailedPrecondition for a tensor
    whose shape is not that of this rank's part.
    """
    from layercast.trainer.megatron_names import read_config
    from layercast.trainer.megatron_reader import MegatronReader

    fields = read_config(config)
    reader = MegatronReader(fields, dtype or _dtype_of(fields), ranks or ranks_here())
    found = [part for chunk in (model if isinstance(model, Sequence) else [model]) for part in reader.chunk(chunk)]
    for name, tensor, (whole, offsets) in found:
        ends = [offset + size for offset, size in zip(offsets, tensor.shape, strict=False)]
        if len(whole) != tensor.dim() or any(end > size for end, size in zip(ends, whole, strict=False)):
            raise FailedPrecondition(
                f"tensor '{name}': expected a part of {list(whole)}, got {list(tensor.shape)} at {list(offsets)}"
            )
    return found


def ranks_here() -> Ranks:
    """Where Megatron's ``parallel_state`` says that this process stands."""
    from layercast.trainer.megatron_reader import Ranks, Split
    from megatron.core import parallel_state as at

    return Ranks(
        Split(at.get_tensor_model_parallel_rank(), at.get_tensor_model_parallel_world_size()),
        Split(at.get_expert_model_parallel_rank(), at.get_expert_model_parallel_world_size()),
        Split(at.get_expert_tensor_parallel_rank(), at.get_expert_tensor_parallel_world_size()),
        at.get_data_parallel_rank(with_context_parallel=True) == 0,
        at.get_expert_data_parallel_rank() == 0,
    )


def _dtype_of(fields: Mapping[str, Any]) -> Any:
    import torch

    name = fields.get("dtype") or fields.get("torch_dtype")
    return None if name is None else getattr(torch, str(name).removeprefix("torch."))
