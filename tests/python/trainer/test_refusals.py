"""What cannot be published is refused by name, before anything is."""

import pytest
import torch
from assembly import assert_same, assembled
from torch import nn

from layercast.errors import FailedPrecondition, InvalidArgument, Unsupported
from layercast.trainer import pieces_of_module, pieces_of_state_dict


def freed():
    tensor = torch.ones(4, 4)
    tensor.untyped_storage().resize_(0)
    return tensor


class Quantized(torch.Tensor):
    """As bitsandbytes' and torchao's: its bytes mean something else."""


REFUSED = {
    "on meta": (torch.ones(2, device="meta"), FailedPrecondition, "expected memory, got a tensor on meta"),
    "freed": (freed(), FailedPrecondition, "expected 64 bytes of memory, got 0"),
    "sparse": (torch.eye(3).to_sparse(), Unsupported, r"got a sparse one \(torch.sparse_coo\)"),
    "compressed": (torch.eye(3).to_sparse_csr(), Unsupported, r"got a sparse one \(torch.sparse_csr\)"),
    "quantized": (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), Unsupported, "got torch.qint8"),
    "a subclass": (torch.ones(3).as_subclass(Quantized), Unsupported, "plain numbers, got Quantized"),
    "complex": (torch.ones(3, dtype=torch.complex64), Unsupported, "got torch.complex64"),
    "without elements": (torch.ones(0, 3), InvalidArgument, r"expected elements, got shape \[0, 3\]"),
    "not a tensor": ([1.0], InvalidArgument, "expected a torch.Tensor, got list"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_tensor_that_is_no_plain_memory_is_refused_by_name(what):
    tensor, error, message = REFUSED[what]
    with pytest.raises(error, match=f"tensor 'layer.w': .*{message}"):
        pieces_of_state_dict({"good": torch.ones(2), "layer.w": tensor})


def test_a_module_on_meta_is_refused_by_name():
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(FailedPrecondition, match="tensor '0.weight': expected memory, got a tensor on meta"):
        pieces_of_module(module)


def test_what_is_no_module_is_refused():
    with pytest.raises(InvalidArgument, match="expected a torch.nn.Module, got dict"):
        pieces_of_module({"w": torch.ones(2)})


def test_a_tensor_whose_memory_is_freed_after_it_was_looked_at_is_refused_when_its_turn_comes():
    tensor = torch.ones(4, 4)
    pieces = pieces_of_state_dict({"w": tensor})
    tensor.untyped_storage().resize_(0)
    with pytest.raises(FailedPrecondition, match="tensor 'w': expected 64 bytes"):
        list(pieces)


def test_a_negated_view_is_resolved():
    view = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert view.is_neg()
    assert_same(assembled(pieces_of_state_dict({"w": view})), {"w": torch.tensor([-2.0, 4.0])})


def test_ranks_without_this_one_are_refused():
    with pytest.raises(InvalidArgument, match=r"ranks below 1, this one \(0\) among them, got \[1\]"):
        pieces_of_module(nn.Linear(2, 2), ranks=[1])
