"""Names of dtypes: safetensors' (``"BF16"``), which Layercast uses, as torch's and numpy's."""

from __future__ import annotations

from typing import Any

from layercast.errors import Unsupported

# safetensors: (torch's attribute, numpy's or ml_dtypes' name)
_NAMES = {
    "BOOL": ("bool", "bool"),
    "U8": ("uint8", "uint8"),
    "I8": ("int8", "int8"),
    "I16": ("int16", "int16"),
    "U16": ("uint16", "uint16"),
    "I32": ("int32", "int32"),
    "U32": ("uint32", "uint32"),
    "I64": ("int64", "int64"),
    "U64": ("uint64", "uint64"),
    "F16": ("float16", "float16"),
    "BF16": ("bfloat16", "bfloat16"),
    "F32": ("float32", "float32"),
    "F64": ("float64", "float64"),
    "C64": ("complex64", "complex64"),
    "F8_E4M3": ("float8_e4m3fn", "float8_e4m3fn"),
    "F8_E5M2": ("float8_e5m2", "float8_e5m2"),
    "F8_E8M0": ("float8_e8m0fnu", "float8_e8m0fnu"),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", "float8_e5m2fnuz"),
    "F4": ("float4_e2m1fn_x2", "float4_e2m1fn"),
}


def torch_dtype(name: str) -> Any:
    """The ``torch.dtype`` of a safetensors name. Raises Unsupported if this torch has none."""
    import torch

    attribute = _NAMES.get(name, (None, None))[0]
    dtype = getattr(torch, attribute, None) if attribute else None
    if dtype is None:
        raise Unsupported(f"torch {torch.__version__} has no dtype for {name}")
    return dtype


def safetensors_name(dtype: Any) -> str:
    """The name of a ``torch.dtype``. Raises Unsupported if safetensors has none."""
    attribute = str(dtype).removeprefix("torch.")
    for name, (spelling, _) in _NAMES.items():
        if spelling == attribute:
            return name
    raise Unsupported(f"no dtype of safetensors is {dtype}")


def numpy_dtype(name: str) -> Any:
    """The ``numpy.dtype`` of a safetensors name; those that numpy lacks come from ml_dtypes, if it is installed."""
    import numpy

    spelling = _NAMES.get(name, (None, None))[1]
    if spelling is None:
        raise Unsupported(f"numpy has no dtype for {name}")
    if hasattr(numpy, spelling) or spelling == "bool":
        return numpy.dtype(spelling)
    try:
        import ml_dtypes
    except ImportError as error:
        raise Unsupported(f"numpy has no dtype for {name} without the package ml_dtypes") from error
    return numpy.dtype(getattr(ml_dtypes, spelling))


def packed_f4(array: Any) -> Any:
    """Two elements of ml_dtypes' float4_e2m1fn in a byte, the first in its low half. The last extent is even."""
    import numpy

    codes = numpy.ascontiguousarray(array).view(numpy.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4


def unpacked_f4(data: Any) -> Any:
    """The inverse: an array of bytes as one of twice as many float4_e2m1fn."""
    import numpy

    codes = numpy.stack((data & 15, data >> 4), axis=-1).reshape(-1)
    return codes.view(numpy_dtype("F4"))
