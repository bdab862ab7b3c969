"""What a module holds is published under its checkpoint's names, whatever wraps it."""

import pytest
import torch
from assembly import assert_same, assembled
from models import filled, model, saved
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from layercast.errors import InvalidArgument
from layercast.trainer import pieces_of_module, pieces_of_state_dict


class Odd(nn.Module):
    """Attributes that are called as wrappers call theirs."""

    def __init__(self):
        super().__init__()
        self.module = nn.Linear(3, 2)
        self.base_model = nn.Linear(2, 2, bias=False)
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def names(pieces):
    return [piece.name for piece in pieces]


def test_attributes_called_like_wrappers_keep_their_names_and_buffers_are_those_of_a_state_dict():
    odd = filled(Odd())
    assert_same(assembled(pieces_of_module(odd)), odd.state_dict())


def test_compiled_and_checkpointed_modules_have_the_names_of_what_they_wrap():
    plain = model("llama")
    expected = saved(plain)
    plain.model.layers[0] = checkpoint_wrapper(plain.model.layers[0])
    plain.model.layers[1].mlp = torch.compile(plain.model.layers[1].mlp)
    assert_same(assembled(pieces_of_module(torch.compile(plain))), expected)


def test_data_parallel_modules_have_the_names_of_what_they_wrap():
    odd = filled(Odd())
    assert_same(assembled(pieces_of_module(nn.DataParallel(odd))), odd.state_dict())


def test_tied_parameters_are_published_once_under_the_name_that_is_saved():
    tied = model("llama", tie_word_embeddings=True)
    assert_same(assembled(pieces_of_module(tied)), saved(tied))
    assert "lm_head.weight" not in names(pieces_of_module(tied))


def test_tied_parameters_of_a_plain_module_are_published_under_their_first_name():
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert names(pieces_of_module(tied)) == [name for name, _ in tied.named_parameters()]


def test_a_state_dict_is_taken_as_named_but_for_segments_of_wrappers():
    odd = filled(Odd())
    compiled = torch.compile(odd).state_dict()
    assert any(name.startswith("_orig_mod.") for name in compiled)
    assert_same(assembled(pieces_of_state_dict(compiled)), odd.state_dict())
    assert_same(assembled(pieces_of_state_dict(iter(odd.state_dict().items()))), odd.state_dict())


def test_a_name_that_comes_twice_is_refused():
    pairs = [("w", torch.ones(2)), ("_orig_mod.w", torch.ones(2))]
    with pytest.raises(InvalidArgument, match="tensor 'w': expected one tensor of this name, got two"):
        pieces_of_state_dict(pairs)


def test_pieces_are_views_of_the_trainers_memory():
    plain = nn.Linear(3, 2)
    assert {piece.tensor.data_ptr() for piece in pieces_of_module(plain)} == {p.data_ptr() for p in plain.parameters()}
    assert not any(piece.tensor.requires_grad for piece in pieces_of_module(plain))
