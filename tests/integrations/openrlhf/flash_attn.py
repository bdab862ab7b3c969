"""Test only: stands in for FlashAttention's wheel, which is for GPUs alone. OpenRLHF imports it, and here nothing calls it."""

import importlib.machinery
import sys
import types

__spec__ = importlib.machinery.ModuleSpec("flash_attn", None)

for _name in ("bert_padding", "utils", "utils.distributed"):
    sys.modules[f"flash_attn.{_name}"] = types.ModuleType(f"flash_attn.{_name}")
for _name in ("index_first_axis", "pad_input", "rearrange", "unpad_input"):
    setattr(sys.modules["flash_attn.bert_padding"], _name, None)
sys.modules["flash_attn.utils.distributed"].all_gather = None
