"""The models of these benchmarks: random weights of well-known shapes, saved by transformers. Nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# layers, widths and vocabularies; "0.6b" is Qwen3-0.6B: 1.19 GB in bf16
_SMALL = {"vocab_size": 320, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "head_dim": 32}
_SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2}
_QWEN3_06B = {"vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28}
_QWEN3_06B |= {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "small": ("Qwen3", _SMALL | {"tie_word_embeddings": True}),
    "0.6b": ("Qwen3", _QWEN3_06B | {"tie_word_embeddings": True}),
    "small-moe": ("Qwen3Moe", _SMALL | _EXPERTS | {"moe_intermediate_size": 64}),
    "moe": (
        "Qwen3Moe",
        _SMALL | _EXPERTS | {"hidden_size": 512, "num_hidden_layers": 8, "vocab_size": 32000, "num_experts": 16}
        | {"moe_intermediate_size": 256},
    ),
}  # fmt: skip


def save(name: str, folder: Path, seed: int = 1) -> None:
    """Writes config.json and model.safetensors, in bf16."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    kind, fields = MODELS[name]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(max_position_embeddings=4096, rms_norm_eps=1e-6, **fields)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for parameter in model.parameters():
        parameter.data.mul_(3)  # at their initial size all answers are one token, whatever the weights
    model.save_pretrained(folder, max_shard_size="100GB")
