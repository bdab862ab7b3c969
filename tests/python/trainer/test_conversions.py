"""A transformers model is published as the folder that save_pretrained would write: names and bytes."""

import pytest
import torch
from assembly import assert_as_announced, assert_same, assembled
from models import filled, model, saved, saved_config, vision_tower

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


@pytest.mark.parametrize("spec", ("llama", "qwen3_moe", "mixtral", "gemma3_vision"))
def test_a_model_that_was_loaded_is_published_as_it_lay_in_its_folder(spec, tmp_path):
    held = model(spec)
    held.save_pretrained(tmp_path)
    assert_same(assembled(pieces_of_module(type(held).from_pretrained(tmp_path))), saved(held))


def test_tensors_that_a_checkpoint_holds_put_together_are_computed():
    held = vision_tower()
    expected = saved(held)
    assert any("weights_in" in name for name in expected)
    assert_same(assembled(assert_as_announced(pieces_of_module(held))), expected)
    half = {name: tensor.bfloat16() for name, tensor in expected.items()}
    assert_same(assembled(assert_as_announced(pieces_of_module(held, dtype=torch.bfloat16))), half)


def test_a_plain_module_has_no_configuration():
    assert config(torch.nn.Linear(2, 2)) == ""


def test_a_model_that_changes_between_two_versions_is_looked_at_again():
    held = model("qwen3_moe")
    assert_same(assembled(pieces_of_module(held)), saved(held))
    filled(held.float())
    held.config.dtype = torch.float32
    assert_same(assembled(pieces_of_module(held)), saved(held))
