"""Masters in fp32 are published in the dtype that the model is served in."""

import pytest
import torch
from assembly import assert_as_announced, assert_same, assembled
from models import model, saved
from torch import nn

from layercast.errors import InvalidArgument
from layercast.trainer import config, pieces_of_module, pieces_of_state_dict


def masters(spec, served=torch.bfloat16):
    held = model(spec, torch.float32)
    held.config.dtype = served
    return held


def loaded_in(held, dtype, folder):
    """The model, saved and loaded by transformers in a dtype."""
    held.save_pretrained(folder)
    return type(held).from_pretrained(folder, dtype=dtype)


@pytest.mark.parametrize("spec", ["llama", "deepseek_v3", "minimax_m2_stacked", "gpt_oss"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_of_masters_is_published_as_transformers_would_load_it(spec, dtype, tmp_path):
    held = masters(spec, dtype)
    expected = saved(loaded_in(masters(spec), dtype, tmp_path))
    assert_same(assembled(assert_as_announced(pieces_of_module(held))), expected)
    assert_same(assembled(pieces_of_module(held, dtype=dtype)), expected)


def test_a_model_that_holds_some_tensors_in_fp32_is_published_as_it_is_held():
    held = model("llama")
    held.model.norm.float()
    assert_same(assembled(pieces_of_module(held)), saved(held))


def test_a_model_of_fp32_whose_configuration_says_so_stays_fp32():
    held = model("llama", torch.float32)
    assert_same(assembled(pieces_of_module(held)), saved(held))


def test_a_plain_module_is_published_as_it_is_held_unless_a_dtype_is_given():
    plain = nn.BatchNorm1d(3)
    assert_same(assembled(pieces_of_module(plain)), plain.state_dict())
    half = {name: tensor.half() if tensor.is_floating_point() else tensor
            for name, tensor in plain.state_dict().items()}
    assert_same(assembled(pieces_of_module(plain, dtype=torch.float16)), half)


def test_tensors_of_one_byte_are_never_cast():
    eight = torch.ones(3).to(torch.float8_e4m3fn)
    assert_same(assembled(pieces_of_state_dict({"w": eight}, dtype=torch.bfloat16)), {"w": eight})


def test_the_configuration_says_in_which_dtype_the_model_is_published():
    assert '"dtype": "bfloat16"' in config(masters("llama"), torch.bfloat16)
    assert '"dtype": "float32"' in config(masters("llama"))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, "bfloat16"])
def test_a_dtype_that_nothing_can_be_cast_to_is_refused(dtype):
    with pytest.raises(InvalidArgument, match="dtype: expected a floating-point torch.dtype"):
        pieces_of_module(nn.Linear(2, 2), dtype=dtype)
