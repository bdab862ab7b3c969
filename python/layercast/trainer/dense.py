"""Which tensors can be published, and what is said of the others. Everything that reads a trainer's tensor uses it."""

from __future__ import annotations

import torch
from torch import Tensor

from layercast.errors import FailedPrecondition, InvalidArgument, Unsupported

# Subclasses that torch's own modules hold. Others give an operator another meaning (quantized weights of bitsandbytes
# and torchao), so that their memory is not what they seem to hold.
_PLAIN = frozenset((Tensor, torch.nn.Parameter))
_STRIDED = torch.strided
DTYPES = frozenset((
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64, torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
))  # fmt: skip


def check_dense(name: str, tensor: Tensor) -> None:
    """Raises, naming the tensor, if it cannot be published as it is."""
    if not (
        type(tensor) in _PLAIN
        and tensor.dtype in DTYPES
        and tensor.layout is _STRIDED
        and (tensor.is_cpu or tensor.is_cuda)
        and tensor.data_ptr()
    ):
        raise _refusal(name, tensor)


def dense(name: str, tensor: Tensor) -> Tensor:
    """The tensor, checked and detached. A lazily negated view is resolved into new memory; anything else is the same
    memory."""
    check_dense(name, tensor)
    return tensor.detach().resolve_neg() if tensor.is_neg() else tensor.detach()


def check_is_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise InvalidArgument(f"tensor '{name}': expected a torch.Tensor, got {type(value).__name__}")


def _refusal(name: str, tensor: Tensor) -> Exception:
    """Why check_dense() refuses a tensor; the most telling reason first, for a quantized one has an odd dtype too."""
    check_is_tensor(name, tensor)
    if tensor.layout is not _STRIDED:
        return Unsupported(f"tensor '{name}': expected a dense tensor, got a sparse one ({tensor.layout})")
    if tensor.is_quantized or type(tensor) not in _PLAIN:
        got = tensor.dtype if tensor.is_quantized else type(tensor).__name__
        return Unsupported(f"tensor '{name}': expected a torch.Tensor of plain numbers, got {got}")
    if tensor.dtype not in DTYPES:
        return Unsupported(f"tensor '{name}': expected real numbers of a dtype that engines know, got {tensor.dtype}")
    if tensor.is_meta:
        return FailedPrecondition(f"tensor '{name}': expected memory, got a tensor on meta, which has none")
    if not (tensor.is_cpu or tensor.is_cuda):
        return Unsupported(f"tensor '{name}': expected memory of the CPU or of CUDA, got device {tensor.device}")
    if tensor.numel() == 0:
        return InvalidArgument(f"tensor '{name}': expected elements, got shape {list(tensor.shape)}")
    expected = tensor.numel() * tensor.element_size()
    return FailedPrecondition(
        f"tensor '{name}': expected {expected} bytes of memory, got {tensor.untyped_storage().nbytes()}: "
        "its storage was freed, as FSDP1 does between two forward passes"
    )
