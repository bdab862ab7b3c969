"""Tensors of torch, numpy, ml_dtypes and DLPack as Layercast's, and Layercast's as theirs: byte for byte, both ways."""

import gc
import weakref

import layercast
import ml_dtypes
import numpy
import pytest
import torch
from layercast import _native

# torch's name: (safetensors' name, numpy's dtype)
DTYPES = {
    "bool": ("BOOL", numpy.bool_), "uint8": ("U8", numpy.uint8), "int8": ("I8", numpy.int8),
    "int16": ("I16", numpy.int16), "uint16": ("U16", numpy.uint16), "int32": ("I32", numpy.int32),
    "uint32": ("U32", numpy.uint32), "int64": ("I64", numpy.int64), "uint64": ("U64", numpy.uint64),
    "float16": ("F16", numpy.float16), "bfloat16": ("BF16", ml_dtypes.bfloat16), "float32": ("F32", numpy.float32),
    "float64": ("F64", numpy.float64), "complex64": ("C64", numpy.complex64),
    "float8_e4m3fn": ("F8_E4M3", ml_dtypes.float8_e4m3fn), "float8_e5m2": ("F8_E5M2", ml_dtypes.float8_e5m2),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
    "float8_e8m0fnu": ("F8_E8M0", ml_dtypes.float8_e8m0fnu),
}
NUMPYS_OWN = {name for name, (_, dtype) in DTYPES.items() if dtype.__module__ == "numpy"}


class DlpackAlone:
    """A tensor of a library that Layercast does not know: it speaks DLPack, and nothing else."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack__(self, **options):
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


def bytes_for(name):
    """64 bytes that are values of the dtype, no two alike where it has so many."""
    data = numpy.arange(64, dtype=numpy.uint8)
    return data % 2 if name == "bool" else data


def read(tensor, name="x"):
    dtype, shape, data = _native.tensor_bytes(name, tensor)
    return dtype, shape, bytes(data)


def of_torch(name):
    return torch.from_numpy(bytes_for(name)).view(getattr(torch, name)).reshape(2, -1)


def layercasts(tensor):
    dtype, shape, data = _native.tensor_bytes("x", tensor)
    return layercast.Tensor(dtype, shape, memoryview(data))


def raw(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("name", DTYPES)
def test_torch_numpy_and_dlpack_are_read_as_the_same_bytes(name):
    expected = (DTYPES[name][0], tuple(of_torch(name).shape), bytes(bytes_for(name)))
    assert read(of_torch(name)) == expected
    assert read(DlpackAlone(of_torch(name))) == expected
    assert read(bytes_for(name).view(DTYPES[name][1]).reshape(2, -1)) == expected


@pytest.mark.parametrize("name", DTYPES)
def test_what_layercast_hands_out_is_what_torch_and_numpy_would_hold(name):
    tensor = layercasts(of_torch(name))
    for back in (tensor.torch(), torch.from_dlpack(tensor)):
        assert back.dtype == getattr(torch, name) and back.shape == of_torch(name).shape
        assert raw(back) == bytes(bytes_for(name))
    array = tensor.numpy()
    assert array.dtype == DTYPES[name][1] and array.shape == of_torch(name).shape and not array.flags.writeable
    assert array.tobytes() == bytes(bytes_for(name))
    assert read(tensor) == (DTYPES[name][0], tensor.shape, bytes(bytes_for(name)))
    if name in NUMPYS_OWN:
        assert numpy.from_dlpack(tensor).tobytes() == bytes(bytes_for(name))


def test_every_dtype_of_torch_that_a_checkpoint_may_have_is_read():
    names = {str(dtype).removeprefix("torch.") for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
    no_memory_of_its_own = {name for name in names if name.startswith(("q", "bits", "int1", "int2", "int3", "int4",
                                                                       "int5", "int6", "int7", "uint1", "uint2",
                                                                       "uint3", "uint4", "uint5", "uint6", "uint7"))}
    no_memory_of_its_own -= set(DTYPES)
    assert names - no_memory_of_its_own - set(DTYPES) == {"complex32", "complex128", "float4_e2m1fn_x2"}


def test_two_elements_of_f4_are_one_of_torchs_and_two_of_ml_dtypes():
    packed = of_torch("uint8").view(torch.float4_e2m1fn_x2)
    expected = ("F4", (2, 64), bytes(bytes_for("uint8")))
    assert read(packed) == read(DlpackAlone(packed)) == expected
    tensor = layercasts(packed)
    assert read(tensor) == expected
    for back in (tensor.torch(), torch.from_dlpack(tensor)):
        assert back.dtype == torch.float4_e2m1fn_x2 and raw(back) == bytes(bytes_for("uint8"))
    array = tensor.numpy()
    assert array.dtype == ml_dtypes.float4_e2m1fn and array.shape == (2, 64)
    low_half_first = [half for byte in bytes_for("uint8") for half in (byte & 15, byte >> 4)]
    assert array.view(numpy.uint8).reshape(-1).tolist() == low_half_first
    assert read(array) == expected


@pytest.mark.parametrize("make, shape, values", [
    (lambda base: base[::-1, ::-1], (3, 4), list(range(11, -1, -1))),
    (lambda base: base[:, 1:3], (3, 2), [1, 2, 5, 6, 9, 10]),
    (lambda base: base.T, (4, 3), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]),
    (lambda base: numpy.broadcast_to(base[0], (2, 4)), (2, 4), [0, 1, 2, 3] * 2),
    (lambda base: base[:0], (0, 4), []),
    (lambda base: base[1, 1], (), [5]),
], ids=["backwards", "columns", "transposed", "broadcast", "empty", "scalar"])
def test_values_are_read_row_major_whatever_the_strides(make, shape, values):
    base = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    assert read(make(base)) == ("F32", shape, numpy.array(values, numpy.float32).tobytes())


def test_strided_and_expanded_and_trained_tensors_of_torch_are_read():
    base = torch.arange(12.0).reshape(3, 4)
    for tensor in (base.T, base[:, ::2], base[0].expand(2, 4), torch.nn.Parameter(base), torch.nn.Parameter(base).T,
                   torch.tensor(3.0), torch.empty(0, 3), base[:, :0]):
        assert read(tensor) == ("F32", tuple(tensor.shape), raw(tensor.detach()) if tensor.numel() else b"")


def test_read_only_arrays_are_read_and_no_copy_is_made_of_what_is_contiguous():
    array = numpy.arange(6, dtype=numpy.float32)
    array.flags.writeable = False
    _, _, data = _native.tensor_bytes("x", array)
    assert numpy.shares_memory(numpy.frombuffer(data, numpy.uint8), array)


def test_memory_lives_as_long_as_anyone_looks_at_it():
    array = numpy.arange(6, dtype=numpy.float32)
    alive = weakref.ref(array)
    view = torch.from_dlpack(layercasts(array))
    del array
    gc.collect()
    assert alive() is not None and view.tolist() == [0, 1, 2, 3, 4, 5]
    del view
    gc.collect()
    assert alive() is None


def freed():
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.ones(3))


def conjugated():
    return torch.ones(2, dtype=torch.complex64).conj()


@pytest.mark.parametrize("make, got", [
    (conjugated, "a lazily conjugated view: call resolve_conj()"),
    (lambda: conjugated().imag, "a lazily negated view: call resolve_neg()"),
    (lambda: torch.empty(3, device="meta"), "one on meta"),
    (freed, "a storage of 0 bytes where it needs 16: was it freed?"),
    (fake, "FakeTensor"),
    (lambda: torch.eye(3).to_sparse(), "one of layout torch.sparse_coo"),
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "a nested one"),
    (lambda: torch.quantize_per_tensor(torch.ones(4), 1.0, 0, torch.qint8), "a quantized one"),
    (lambda: "weights", "a str"), (lambda: [1.0, 2.0], "a list"), (lambda: None, "a NoneType"),
    (lambda: numpy.zeros(2, [("a", "f4"), ("b", "i2")])["a"], "strides of 6 bytes between elements of 4"),
    (lambda: torch.zeros(4, 4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).T, "a strided float4_e2m1fn_x2"),
    (lambda: numpy.zeros((2, 3), ml_dtypes.float4_e2m1fn), "an odd number of float4_e2m1fn in a row"),
], ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.filterwarnings("ignore")
def test_what_has_no_values_of_its_own_is_refused_by_name(make, got):
    with pytest.raises(layercast.InvalidArgument) as refused:
        read(make(), "model.norm.weight")
    assert "'model.norm.weight': expected a dense tensor with memory of its own" in str(refused.value)
    assert got in str(refused.value)


def test_a_tensor_within_a_transform_is_refused_by_name():
    def look(row):
        with pytest.raises(layercast.InvalidArgument, match="'model.norm.weight': .* BatchedTensor"):
            read(row, "model.norm.weight")
        return row

    torch.vmap(look)(torch.ones(3, 2))


@pytest.mark.parametrize("tensor, got", [
    (torch.ones(2, dtype=torch.complex128), "torch.complex128"),
    (numpy.ones(2, numpy.longdouble), "longdouble"),
    (numpy.ones(2, ">f4"), "float32 in the other byte order"),
    (numpy.array([None]), "object"),
    (numpy.zeros(2, ml_dtypes.int4), "int4"),
    (numpy.zeros(4, ml_dtypes.float6_e2m3fn), "float6_e2m3fn"),
    (DlpackAlone(torch.ones(2, dtype=torch.complex128)), "DLPack's code 5 of 128 bits"),
], ids=["complex128", "longdouble", "big endian", "objects", "int4", "float6", "of DLPack"])
def test_a_dtype_that_layercast_lacks_is_refused_by_name(tensor, got):
    with pytest.raises(layercast.Unsupported) as refused:
        read(tensor, "model.norm.weight")
    assert "'model.norm.weight': Layercast has no dtype for" in str(refused.value)
    assert got in str(refused.value).replace("float128", "longdouble")
