"""A transformers model is published as the folder that save_pretrained would write: names and bytes."""

import pytest
import torch
from assembly import assert_as_announced, assert_same, assembled
from models import model, saved, saved_config

from layercast.trainer import config, pieces_of_module

SAVED_IN_ANOTHER_FORM = ("qwen3_moe", "mixtral", "deepseek_v3", "qwen2_moe", "qwen3_5_moe_vision", "minimax_m2")
SAVED_AS_HELD = ("llama", "qwen3", "qwen2", "gpt_oss", "phi3", "gemma3", "gemma3_vision")


@pytest.mark.parametrize("spec", SAVED_IN_ANOTHER_FORM + SAVED_AS_HELD)
def test_a_model_is_published_as_save_pretrained_writes_it(spec):
    held = model(spec)
    assert_same(assembled(assert_as_announced(pieces_of_module(held))), saved(held))


@pytest.mark.parametrize("spec", SAVED_IN_ANOTHER_FORM)
def test_tensors_of_experts_are_views_of_the_trainers_memory(spec):
    held = model(spec)
    own = {tensor.untyped_storage().data_ptr() for tensor in [*held.parameters(), *held.buffers()]}
    assert {piece.tensor.untyped_storage().data_ptr() for piece in pieces_of_module(held)} <= own


@pytest.mark.parametrize("spec", ("llama", "qwen3_moe", "gemma3_vision"))
def test_the_configuration_is_what_save_pretrained_writes(spec):
    held = model(spec)
    before = held.config.to_dict()
    text = config(held)
    assert held.config.to_dict() == before
    assert text == saved_config(held)


def test_a_plain_module_has_no_configuration():
    assert config(torch.nn.Linear(2, 2)) == ""
