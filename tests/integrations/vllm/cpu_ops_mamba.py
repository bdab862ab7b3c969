"""Test only: torch versions of what Mamba2's layers call on a CPU, for cpu_ops.py. One sequence step at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def forget_packing() -> None:
    """vLLM packs the weights of convolutions where it knows the operation, which its CUDA wheel does not have."""
    from vllm import _custom_ops

    if hasattr(_custom_ops, "causal_conv1d_weight_pack"):
        del _custom_ops.causal_conv1d_weight_pack


def _conv_update(
    x: torch.Tensor,  # [sequences, channels]
    states: torch.Tensor,  # [slots, channels, width - 1]
    weight: torch.Tensor,  # [channels, width]
    bias: torch.Tensor | None,
    activation: str | None,
    slots: torch.Tensor | None,
    starts: torch.Tensor | None,
    padding: int,
) -> torch.Tensor:
    assert starts is None, "expected one token for each sequence"
    out = torch.empty_like(x)
    width = weight.shape[1]
    for row in range(x.shape[0]):
        state = states[row if slots is None else int(slots[row])]
        window = torch.cat([state[:, : width - 1], x[row, :, None].to(state.dtype)], 1)
        state[:, : width - 1] = window[:, 1:]
        total = (window.float() * weight.float()).sum(1)
        total = total if bias is None else total + bias.float()
        out[row] = torch.nn.functional.silu(total) if activation in ("silu", "swish") else total
    return out


def _scan(
    out: torch.Tensor,  # [tokens, heads, head size]
    states: torch.Tensor,  # [sequences, heads, head size, state size]
    x: torch.Tensor,
    dt: torch.Tensor,  # [tokens, heads]
    a: torch.Tensor,  # [heads], negative
    b: torch.Tensor,  # [tokens, groups, state size]
    c: torch.Tensor,
    d: torch.Tensor | None,
    z: torch.Tensor | None,
    starts: torch.Tensor,
) -> None:
    heads = x.shape[1] // b.shape[1]
    for sequence in range(starts.numel() - 1):
        for token in range(int(starts[sequence]), int(starts[sequence + 1])):
            rows = (part[token].float().repeat_interleave(heads, 0) for part in (b, c))
            out[token] = _step(states[sequence], x[token].float(), dt[token], a, *rows, d).to(out.dtype)
    assert z is None


def _state_update(
    states: torch.Tensor,  # [slots, heads, head size, state size]
    x: torch.Tensor,  # [sequences, heads, head size]
    dt: torch.Tensor,  # [sequences, heads, head size], spread over the last
    a: torch.Tensor,  # [heads, head size, state size], spread over the last two
    b: torch.Tensor,  # [sequences, groups, state size]
    c: torch.Tensor,
    d: torch.Tensor | None,
    z: torch.Tensor | None,
    dt_bias: torch.Tensor | None,
    softplus: bool,
    slots: torch.Tensor | None,
    _: torch.Tensor | None,
    padding: int,
    out: torch.Tensor,
    *more: Any,
) -> None:
    assert z is None
    heads = x.shape[1] // b.shape[1]
    for row in range(x.shape[0]):
        step = dt[row, :, 0].float()
        step = step if dt_bias is None else step + dt_bias[:, 0].float()
        step = torch.nn.functional.softplus(step) if softplus else step
        state = states[row if slots is None else int(slots.flatten()[row])]
        rows = (part[row].float().repeat_interleave(heads, 0) for part in (b, c))
        d_of_heads = None if d is None else d[:, 0]
        out[row] = _step(state, x[row].float(), step, a[:, 0, 0], *rows, d_of_heads).to(out.dtype)


def _step(
    state: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    d: torch.Tensor | None,
) -> torch.Tensor:
    """One token of one sequence, whose state it changes: [heads, head size]."""
    decay = torch.exp(dt * a.float())[:, None, None]
    new = state.float() * decay + dt[:, None, None] * x[:, :, None] * b[:, None, :]
    state.copy_(new)
    out = (new * c[:, None, :]).sum(-1)
    return out if d is None else out + d.float()[:, None] * x


OPERATIONS: dict[str, Callable[..., Any]] = {
    "causal_conv1d_update_cpu_vec(Tensor x, Tensor(a!) states, Tensor weight, Tensor? bias, str? activation, "
    "Tensor? slots, Tensor? starts, int padding) -> Tensor": _conv_update,
    "mamba_chunk_scan_fwd_cpu(Tensor(a!) out, Tensor(b!) states, Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, "
    "Tensor? d, Tensor? z, Tensor starts) -> ()": _scan,
    "selective_state_update_cpu(Tensor(a!) states, Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor? d, "
    "Tensor? z, Tensor? dt_bias, bool softplus, Tensor? slots, Tensor? to, int padding, Tensor(b!) out, "
    "Tensor? accepted, Tensor? starts) -> ()": _state_update,
}
