"""Tensors that Layercast hands out: of checkpoints, of recipes."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

from layercast import _native
from layercast.dtypes import numpy_dtype, torch_dtype, unpacked_f4


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in memory that Layercast owns, read-only, and alive as long as this or a view of it is.

    ``dtype`` is safetensors' name ("BF16"), ``data`` the bytes, row-major.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def numpy(self) -> Any:
        """A read-only view as a numpy array; bf16 and fp8 need the package ml_dtypes.

        Of F4 a copy, for ml_dtypes has one element in a byte.
        """
        import numpy

        data = numpy.frombuffer(self.data, dtype=numpy.uint8)
        values = unpacked_f4(data) if self.dtype == "F4" else data.view(numpy_dtype(self.dtype))
        return values.reshape(self.shape)

    def torch(self) -> Any:
        """A view as a torch tensor on the CPU. torch knows no read-only memory: writing to it ends the process."""
        import torch

        dtype = torch_dtype(self.dtype)
        shape = self.shape
        if self.dtype == "F4":  # two elements in each of torch's
            shape = (*shape[:-1], shape[-1] // 2)
        if math.prod(shape) == 0:
            return torch.empty(shape, dtype=dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            return torch.frombuffer(self.data, dtype=torch.uint8).view(dtype).reshape(shape)

    def __dlpack__(self, **options: Any) -> Any:
        return _native.ndarray(self.dtype, self.shape, self.data).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # the CPU

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}, {list(self.shape)})"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor without its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
