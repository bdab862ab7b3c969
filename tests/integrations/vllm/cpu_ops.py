"""Test only: torch versions of the operations that vLLM's released CUDA wheel lacks on a CPU, as a general plug-in.

With ``VLLM_TARGET_DEVICE=cpu`` the whole engine runs on them: `PYTHONPATH=<this folder>:<this folder>/plugin` is
enough. Attention's write what vLLM's CPU kernels would. Those of ``STAND_INS`` quantize: they have the arithmetic of
vLLM's CUDA kernels (in float, times the reciprocal of the scale, clamped, rounded to nearest even), and the speed of
torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cpu_ops_mamba
import torch

STAND_INS = ("static_scaled_fp8_quant", "dynamic_scaled_fp8_quant", "dynamic_per_token_scaled_fp8_quant")

_FP8_MAX = 448.0
_SMALLEST_SCALE = 1.0 / (_FP8_MAX * 512.0)
_CHUNK = 128 * 1024  # elements quantized at once: their floats stay in the second-level cache
_libraries: list[Any] = []  # an operation goes when its library does


def register() -> None:
    """vLLM calls this in each of its processes, perhaps twice. What the wheel has already stays as it is."""
    if torch.cuda.is_available():
        return
    import vllm.model_executor.layers.utils as layers
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

    library = torch.library.Library("_C", "FRAGMENT")
    _libraries.append(library)
    for schema, operation in (_OPERATIONS | cpu_ops_mamba.OPERATIONS).items():
        name = schema.partition("(")[0]
        if not hasattr(torch.ops._C, name):
            library.define(schema)
            library.impl(name, operation, "CompositeExplicitAutograd")
    cpu_ops_mamba.forget_packing()
    RotaryEmbedding.forward_cpu = RotaryEmbedding.forward_native
    layers.check_cpu_sgl_kernel = lambda *_: False  # the wheel has none of its packed kernels


# ---- attention and sampling ----


def _init_cpu_memory_env(nodes: list[int]) -> None:
    """Binds memory to nodes of the machine: no matter here."""


def _compute_slot_mapping(
    query_starts: torch.Tensor, positions: torch.Tensor, blocks: torch.Tensor, slots: torch.Tensor, block_size: int
) -> None:
    for request in range(query_starts.numel() - 1):
        begin, end = int(query_starts[request]), int(query_starts[request + 1])
        position = positions[begin:end].long()
        block = blocks[request].long()[position // block_size]
        slots[begin:end] = (block * block_size + position % block_size).to(slots.dtype)


def _get_scheduler_metadata(*_: Any) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32)


def _reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,  # [blocks, heads, block size, head size]
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    isa: str,
    key_scale: float,
    value_scale: float,
    kv_dtype: str,
) -> None:
    taken = slots[: key.shape[0]].long()
    kept = taken >= 0  # a slot below zero is padding
    block, place = taken[kept] // key_cache.shape[2], taken[kept] % key_cache.shape[2]
    key_cache[block, :, place] = key[: len(taken)][kept]
    value_cache[block, :, place] = value[: len(taken)][kept]


def _attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    query_starts: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    causal: bool,
    alibi: torch.Tensor | None,
    window: int,
    blocks: torch.Tensor,
    soft_cap: float,
    metadata: torch.Tensor,
    sinks: torch.Tensor | None,
    dynamic_causal: torch.Tensor | None,
    key_scale: float,
    value_scale: float,
    kv_dtype: str,
) -> None:
    group = query.shape[1] // key_cache.shape[1]
    for request in range(lengths.numel()):
        begin, end = int(query_starts[request]), int(query_starts[request + 1])
        length = int(lengths[request])
        keys, values = (_cached(cache, blocks[request], length, group) for cache in (key_cache, value_cache))
        weights = torch.einsum("qhd,khd->hqk", query[begin:end].float(), keys) * scale
        if causal:
            last = torch.arange(length - (end - begin), length)[:, None]
            weights = weights.masked_fill(torch.arange(length)[None] > last, float("-inf"))
        answer = torch.einsum("hqk,khd->qhd", weights.softmax(-1), values)
        out[begin:end] = answer.reshape(out[begin:end].shape).to(out.dtype)


def _cached(cache: torch.Tensor, blocks: torch.Tensor, length: int, group: int) -> torch.Tensor:
    """One request's keys or values, [length, query heads, head size]."""
    used = cache[blocks[: -(-length // cache.shape[2])].long()]
    flat = used.permute(0, 2, 1, 3).reshape(-1, cache.shape[1], cache.shape[3])
    return flat[:length].float().repeat_interleave(group, 1)


def _greedy_argmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(-1)


# ---- stand-ins for quantization ----


def _static_scaled_fp8_quant(
    out: torch.Tensor, values: torch.Tensor, scale: torch.Tensor, group_shape: list[int] | None = None
) -> None:
    assert scale.numel() == 1, f"expected one scale for the tensor, got {list(scale.shape)}"
    _quantize(out, values, scale.reshape(1, 1))


def _dynamic_scaled_fp8_quant(out: torch.Tensor, values: torch.Tensor, scale: torch.Tensor) -> None:
    scale.copy_(values.abs().amax().float() / _FP8_MAX)
    _quantize(out, values, scale.reshape(1, 1))


def _dynamic_per_token_scaled_fp8_quant(
    out: torch.Tensor, values: torch.Tensor, scale: torch.Tensor, upper_bound: torch.Tensor | None = None
) -> None:
    amax = values.abs().amax(dim=-1, keepdim=True).float()
    if upper_bound is not None:
        amax = amax.minimum(upper_bound)
    scale.copy_((amax / _FP8_MAX).clamp_min(_SMALLEST_SCALE))
    _quantize(out, values, scale)


def _quantize(out: torch.Tensor, values: torch.Tensor, scale: torch.Tensor) -> None:
    """``scale``: [1, 1], or [rows, 1]."""
    inverse = scale.reciprocal().expand(values.shape[0], 1)
    rows = max(1, _CHUNK // max(1, values.shape[1]))
    for begin in range(0, values.shape[0], rows):
        piece = slice(begin, begin + rows)
        out[piece] = (values[piece].float() * inverse[piece]).clamp_(-_FP8_MAX, _FP8_MAX).to(out.dtype)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "init_cpu_memory_env(int[] nodes) -> ()": _init_cpu_memory_env,
    "compute_slot_mapping_kernel_impl(Tensor query_starts, Tensor positions, Tensor blocks, Tensor(a!) slots, "
    "int block_size) -> ()": _compute_slot_mapping,
    "get_scheduler_metadata(int a, int b, int c, int d, Tensor e, ScalarType f, Tensor g, bool h, int i, str j, "
    "bool k, Tensor? l, str m) -> Tensor": _get_scheduler_metadata,
    "cpu_attn_reshape_and_cache(Tensor k, Tensor v, Tensor(a!) kc, Tensor(b!) vc, Tensor slots, str isa, float ks, "
    "float vs, str dt) -> ()": _reshape_and_cache,
    "cpu_attention_with_kv_cache(Tensor q, Tensor kc, Tensor vc, Tensor(a!) out, Tensor qsl, Tensor sl, float scale, "
    "bool causal, Tensor? al, int sw, Tensor bt, float cap, Tensor md, Tensor? sinks, Tensor? dyn, float ks, "
    "float vs, str dt) -> ()": _attention,
    "greedy_argmax(Tensor x) -> Tensor": _greedy_argmax,
    "static_scaled_fp8_quant(Tensor(a!) out, Tensor values, Tensor scale, int[]? group_shape=None) -> ()": (
        _static_scaled_fp8_quant
    ),
    "dynamic_scaled_fp8_quant(Tensor(a!) out, Tensor values, Tensor(b!) scale) -> ()": _dynamic_scaled_fp8_quant,
    "dynamic_per_token_scaled_fp8_quant(Tensor(a!) out, Tensor values, Tensor(b!) scale, "
    "Tensor? upper_bound=None) -> ()": _dynamic_per_token_scaled_fp8_quant,
}
