"""The table kernel layout -> ours: which view of an engine's memory is a tensor, against layouts made by hand."""

import pytest
import torch
from layercast.host.views import NotAdoptable, tensor_in
from layercast.tensor import TensorSpec

FP8 = torch.float8_e4m3fn


def codes(*shape):
    return torch.randint(0, 120, shape, dtype=torch.uint8)


def weight(rows, columns):
    return TensorSpec("layer.weight", "F8_E4M3", (rows, columns))


def scale(*shape):
    return TensorSpec("layer.weight_scale", "F32", shape)


def test_a_transposed_view_is_seen_as_the_rows_that_lie_in_memory():
    memory = codes(6, 4).view(FP8)
    for live in (memory, memory.t()):  # as it is, and as torch._scaled_mm takes it
        found = tensor_in(live, weight(6, 4))
        assert found.data_ptr() == memory.data_ptr() and found.shape == (6, 4) and found.is_contiguous()


def test_of_a_square_the_way_in_which_it_lies_counts():
    memory = codes(4, 4).view(FP8)
    assert tensor_in(memory.t(), weight(4, 4)).is_contiguous()


def test_padding_to_multiples_of_16_stays_outside():
    """Cutlass: [K', N'] over [N', K'] memory, channel scales [N', 1] padded with 1.0."""
    memory = torch.zeros(64, 48, dtype=torch.uint8)
    found = tensor_in(memory.view(FP8).t(), weight(60, 40))
    found.view(torch.uint8).fill_(7)
    assert memory[:60, :40].eq(7).all() and memory.sum() == 7 * 60 * 40
    scales = torch.ones(64, 1)
    tensor_in(scales, scale(60, 1)).fill_(0.5)
    assert scales[:60].eq(0.5).all() and scales[60:].eq(1).all()
    flat = torch.ones(64)
    tensor_in(flat, scale(60, 1)).fill_(0.5)
    assert flat[:60].eq(0.5).all() and flat[60:].eq(1).all()


@pytest.mark.parametrize(
    ("live", "shape"),
    [
        (torch.zeros(8), (8, 1)),
        (torch.zeros(1, 8), (8, 1)),  # SGLang's channel scales
        (torch.zeros(()), (1,)),
        (torch.zeros(1, 1), (1,)),
        (torch.zeros(3, 5).t().contiguous().t(), (3, 5)),  # DeepGEMM's column-major scales of blocks
        (torch.zeros(5, 3).t(), (3, 5)),
    ],
)
def test_numbers_and_scales_in_other_numbers_of_axes(live, shape):
    found = tensor_in(live, scale(*shape))
    found.fill_(2)
    assert found.shape == shape and live.eq(2).all()


@pytest.mark.parametrize(
    ("live", "spec", "words"),
    [
        (torch.zeros(8, 4), weight(8, 4), "expected torch.float8_e4m3fn, got torch.float32"),
        (torch.empty(0, dtype=FP8), weight(8, 4), r"expected \[8, 4\], got \[0\]"),
        (codes(8, 5).view(FP8), weight(8, 4), r"expected \[8, 4\], got \[8, 5\]"),
        (torch.zeros(7, 1), scale(8, 1), r"expected \[8, 1\], got \[7, 1\]"),
    ],
)
def test_what_is_no_such_layout_is_named(live, spec, words):
    with pytest.raises(NotAdoptable, match=words):
        tensor_in(live, spec)
