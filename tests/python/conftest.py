"""What tests of the Python package share: a small policy of transformers, and the buffers of an engine that takes it."""

import os
import pathlib
import sys

import layercast
import pytest
import torch
from layercast.dtypes import torch_dtype

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "trainer"))


def _policy(seed):
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, vocab_size=131, max_position_embeddings=64, bos_token_id=None,
                         eos_token_id=None)
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config).to(torch.bfloat16)


@pytest.fixture(scope="session")
def policy():
    """A model of two layers. Whoever changes it changes `policies` instead."""
    return _policy(1)


@pytest.fixture(scope="session")
def policies():
    """policies(seed) -> a model of its own; all differ in every matrix."""
    return _policy


@pytest.fixture(scope="session")
def folder(policy, tmp_path_factory):
    """Where transformers has saved the policy."""
    path = tmp_path_factory.mktemp("policy")
    policy.save_pretrained(path)
    return path


def _buffers(folder, **layout):
    specs = layercast.buffer_specs(folder, **layout)
    return {spec.name: torch.zeros(spec.shape, dtype=torch_dtype(spec.dtype)) for spec in specs}


@pytest.fixture
def buffers():
    """buffers(folder, quantization=..., tp_rank=..., tp_size=...) -> an engine's tensors by their names, of zeros."""
    return _buffers


@pytest.fixture
def publisher():
    with layercast.Publisher() as publisher:
        yield publisher


@pytest.fixture
def receiver(folder):
    with layercast.Receiver(folder, buffers=_buffers(folder)) as receiver:
        yield receiver
