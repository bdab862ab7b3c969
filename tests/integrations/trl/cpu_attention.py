"""AsyncGRPOTrainer on a CPU: stand-ins for what TRL has for GPUs alone."""

import types

import torch
from torch.nn import functional


def varlen_attention(query, key, value, cu_q, cu_k, max_q, max_k, *, softmax_scale, causal, window_size):
    """FlashAttention-3's, as a loop over the segments: of [tokens, heads, width], the last rows of each attend."""
    found = []
    for q0, q1, k0, k1 in zip(cu_q, cu_q[1:], cu_k, cu_k[1:]):
        q, k, v = (x.transpose(0, 1) for x in (query[q0:q1], key[k0:k1], value[k0:k1]))
        visible = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        attended = functional.scaled_dot_product_attention(q, k, v, visible, scale=softmax_scale, enable_gqa=True)
        found.append(attended.transpose(0, 1))
    return torch.cat(found)


def install(monkeypatch):
    from trl.experimental.async_grpo import async_grpo_trainer, packing

    monkeypatch.setattr(packing, "_flash_attn", lambda: types.SimpleNamespace(flash_attn_varlen_func=varlen_attention))
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)
