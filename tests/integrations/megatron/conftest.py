"""What the tests against Megatron-core share: checkpoints, and its model on one rank."""

import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import core_model  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

MODELS = {"qwen3": {}, "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True}}


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    def make(family):
        folder = tmp_path_factory.mktemp(family)
        torch.manual_seed(1)
        config = AutoConfig.for_model(family, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=8,
                                      num_key_value_heads=4, head_dim=16, vocab_size=131, initializer_range=0.3, bos_token_id=None,
                                      eos_token_id=None, pad_token_id=None, **MODELS[family])
        AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def one_rank(tmp_path):
    """one_rank(folder) -> the model, whole, where torch.distributed has one rank: this process."""

    def make(folder):
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
        return core_model.model_of(folder, 1, 1, 1, torch.bfloat16)

    return make
