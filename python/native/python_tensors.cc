#include "python/native/python_tensors.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "layercast/error.h"
#include "python/native/memory/dlpack_dtypes.h"
#include "python/native/memory/python_memory.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

Memory MemoryOf(const std::string& name, nb::handle object) {
  if (IsTorch(object)) return MemoryOfTorch(name, object);
  return IsNumpy(object) ? MemoryOfNumpy(name, object) : MemoryOfDlpack(name, object);
}

// The same values, row-major and on the host.
nb::object Packed(const std::string& name, nb::handle object) {
  if (IsTorch(object)) {
    return object.attr("detach")().attr("cpu")().attr("contiguous")();
  }
  if (IsNumpy(object)) return nb::module_::import_("numpy").attr("ascontiguousarray")(object);
  Refuse(name, "one that is not contiguous, through DLPack");
}

// Objects that went out of use on threads without the GIL.
struct DropWithGil {
  PyObject* object;
  void operator()(const void* /*unused*/) const {
    if (!Py_IsInitialized()) return;
    const nb::gil_scoped_acquire gil;
    Py_DECREF(object);
  }
};

// A Python generator, walked by whatever thread asks. It is dropped with the GIL.
class PythonIterator final : public WeightsIterator {
 public:
  PythonIterator(nb::object iterator, bool stay) : iterator_(Keep(iterator)), walked_(iterator.ptr()), stay_(stay) {}

  std::optional<NamedTensor> Next() override {
    const nb::gil_scoped_acquire gil;
    CheckSignals();
    if (walked_ == nullptr) return std::nullopt;
    const nb::object element = nb::steal(PyIter_Next(walked_));
    if (element.is_valid()) return NamedTensorFrom(element, stay_);
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    walked_ = nullptr;
    return std::nullopt;
  }

 private:
  Kept iterator_;
  PyObject* walked_;  // iterator_'s; null once it has ended
  const bool stay_;
};

Shape ShapeFrom(const std::string& name, nb::handle sequence) {
  try {
    return nb::cast<Shape>(sequence);
  } catch (const nb::cast_error&) {
    throw Error(ErrorCode::kInvalidArgument, "'" + name + "': expected a part as (whole shape, offsets), got " +
                                                 nb::cast<std::string>(nb::repr(sequence)));
  }
}

// Bytes as an array that speaks DLPack. Of F4, two elements are one of its, as torch has them.
nb::object DlpackOf(const std::string& dtype_name, const nb::tuple& shape, const nb::object& bytes) {
  const std::optional<DType> dtype = DTypeFromSafetensors(dtype_name);
  const std::optional<nb::dlpack::dtype> type = dtype ? DlpackFromDType(*dtype) : std::nullopt;
  if (!type) throw Error(ErrorCode::kUnsupported, "DLPack has no dtype for " + dtype_name);
  auto extents = nb::cast<std::vector<std::size_t>>(shape);
  if (!extents.empty()) extents.back() /= type->lanes;
  const auto data = nb::cast<nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::ro>>(bytes);
  return nb::cast(
      nb::ndarray<nb::array_api, nb::ro>(data.data(), extents.size(), extents.data(), bytes, nullptr, *type));
}

}  // namespace

Kept Keep(nb::object object) {
  PyObject* kept = object.release().ptr();
  return {static_cast<const void*>(kept), DropWithGil{kept}};
}

NamedTensor TensorFrom(std::string name, nb::handle tensor, bool stay) {
  Memory memory = MemoryOf(name, tensor);
  if (!IsContiguous(memory) || (memory.device.kind == Device::Kind::kCuda && !stay)) {
    memory = MemoryOf(name, Packed(name, tensor));
  }
  return {.name = std::move(name),
          .tensor = {.dtype = memory.dtype,
                     .shape = std::move(memory.shape),
                     .data = reinterpret_cast<const std::byte*>(memory.address),
                     .device = memory.device},
          .owner = Keep(std::move(memory.keeper))};
}

NamedTensor NamedTensorFrom(nb::handle element, bool stay) {
  nb::object parts = nb::steal(PySequence_Tuple(element.ptr()));
  const Py_ssize_t size = parts.is_valid() ? PyTuple_Size(parts.ptr()) : 0;
  PyErr_Clear();
  if (size < 2 || size > 4 || !nb::isinstance<nb::str>(parts[0])) {
    throw Error(ErrorCode::kInvalidArgument,
                "expected (name, tensor), got " + nb::cast<std::string>(nb::repr(element)));
  }
  NamedTensor named = TensorFrom(nb::cast<std::string>(parts[0]), parts[1], stay);
  if (size > 2 && !parts[2].is_none()) {
    const nb::object whole = size == 4 ? nb::object(parts[2]) : nb::object(parts[2][0]);
    const nb::object offsets = size == 4 ? nb::object(parts[3]) : nb::object(parts[2][1]);
    named.part = TensorPart{.whole = ShapeFrom(named.name, whole), .offsets = ShapeFrom(named.name, offsets)};
  }
  return named;
}

CapturedBuffer BufferFrom(const std::string& name, nb::handle tensor) {
  Memory memory = MemoryOf(name, tensor);
  if (!memory.writable) Refuse(name, "read-only memory");
  return {.name = name,
          .address = reinterpret_cast<std::byte*>(memory.address),
          .dtype = memory.dtype,
          .shape = std::move(memory.shape),
          .strides = std::move(memory.strides),
          .device = memory.device};
}

std::unique_ptr<WeightsIterator> IteratorFrom(nb::object iterator, bool stay) {
  return std::make_unique<PythonIterator>(nb::iter(iterator), stay);
}

nb::object BytesOf(const NamedTensor& tensor) {
  auto owner = std::make_unique<Kept>(tensor.owner);
  nb::capsule capsule(owner.get(), [](void* kept) noexcept { delete static_cast<Kept*>(kept); });
  owner.release();  // the capsule's now
  return nb::cast(nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::memview>(
      tensor.tensor.data, {static_cast<std::size_t>(tensor.tensor.num_bytes())}, capsule));
}

nb::tuple TupleOf(const TensorSpec& spec) {
  return nb::make_tuple(spec.name, std::string(SafetensorsName(spec.dtype)), nb::tuple(nb::cast(spec.shape)));
}

nb::tuple TupleOf(const NamedTensor& tensor) {
  return nb::make_tuple(tensor.name, std::string(SafetensorsName(tensor.tensor.dtype)),
                        nb::tuple(nb::cast(tensor.tensor.shape)), BytesOf(tensor));
}

void BindTensors(nb::module_& module) {
  module.def("ndarray", DlpackOf);
  // For tests of the way back and forth: what a tensor is read as.
  module.def(
      "tensor_bytes",
      [](const std::string& name, nb::handle tensor) {
        const nb::tuple read = TupleOf(TensorFrom(name, tensor));
        return nb::make_tuple(read[1], read[2], read[3]);
      },
      nb::arg("name"), nb::arg("tensor").none());
}

}  // namespace layercast::python
