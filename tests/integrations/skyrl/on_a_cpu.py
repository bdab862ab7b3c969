"""SkyRL's own classes on a CPU and on Python 3.11; imported before SkyRL. Nothing of weight sync is replaced."""

import importlib.machinery
import sys
import types
import typing

import torch
import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # pydantic wants it so before Python 3.12
torch.cuda.current_device = lambda: "cpu"  # whither its extractor gathers

# FlashAttention, whose wheel is for GPUs alone, and which nothing here calls.
for name in ("flash_attn", "flash_attn.bert_padding"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
sys.modules["flash_attn.bert_padding"].pad_input = sys.modules["flash_attn.bert_padding"].unpad_input = None
