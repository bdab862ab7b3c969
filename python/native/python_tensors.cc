#include "python/native/python_tensors.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "layercast/error.h"
#include "python/native/dlpack_dtypes.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

[[noreturn]] void Refuse(const std::string& name, const std::string& got) {
  throw Error(ErrorCode::kInvalidArgument,
              "'" + name + "': expected a dense tensor with memory of its own, got " + got);
}

// What a Python object says about its memory. The keeper owns the memory.
struct Memory {
  DType dtype = DType::kF32;
  Shape shape{};
  std::vector<std::int64_t> strides{};  // in elements
  std::uintptr_t address = 0;
  Device device{};
  bool writable = true;
  nb::object keeper;
};

bool IsContiguous(const Memory& memory) {
  std::int64_t expected = 1;
  for (std::size_t d = memory.shape.size(); d-- > 0;) {
    if (memory.shape[d] == 1) continue;
    if (memory.shape[d] == 0) return true;
    if (memory.strides[d] != expected) return false;
    expected *= memory.shape[d];
  }
  return true;
}

// An attribute's or a method's name, made once.
class Name {
 public:
  explicit Name(const char* name) : object_(PyUnicode_InternFromString(name)) {}
  nb::object Of(nb::handle object) const {
    PyObject* got = PyObject_GetAttr(object.ptr(), object_);
    if (got == nullptr) throw nb::python_error();
    return nb::steal(got);
  }
  nb::object Call(nb::handle object) const {
    PyObject* arguments[] = {object.ptr()};
    PyObject* got = PyObject_VectorcallMethod(object_, arguments, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (got == nullptr) throw nb::python_error();
    return nb::steal(got);
  }
  bool Is(nb::handle object) const { return Of(object).ptr() == Py_True; }
  bool CallIs(nb::handle object) const { return Call(object).ptr() == Py_True; }

 private:
  PyObject* object_;  // never freed, like the interpreter's own
};

std::vector<std::int64_t> IntegersOf(nb::handle sequence) {
  const Py_ssize_t size = PyTuple_Size(sequence.ptr());
  if (size < 0) throw nb::python_error();
  std::vector<std::int64_t> integers(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    integers[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GetItem(sequence.ptr(), i));
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return integers;
}

std::string TextOf(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }
std::string TypeOf(nb::handle object) { return TextOf(object.type().attr("__name__")); }

// The module if the program has imported it, or null: Layercast imports neither torch nor numpy by itself.
nb::object Imported(const char* name) {
  nb::object modules = nb::module_::import_("sys").attr("modules");
  return modules.attr("get")(name);
}

// ---- torch ----------------------------------------------------------------------------------------------------------

struct Torch {
  nb::object tensor_type, parameter_type, strided;
  std::unordered_map<PyObject*, DType> dtypes{};  // torch's dtypes are singletons
  PyObject* packed_f4 = nullptr;                  // two elements in a byte, which its shape counts as one
};

// Null: torch is not imported. Never freed.
Torch* ImportedTorch() {
  static Torch* torch = nullptr;
  if (torch != nullptr) return torch;
  nb::object module = Imported("torch");
  if (module.is_none() || !nb::hasattr(module, "Tensor") || !nb::hasattr(module, "strided")) return nullptr;
  auto* made = new Torch{.tensor_type = module.attr("Tensor"),
                         .parameter_type = module.attr("nn").attr("Parameter"),
                         .strided = module.attr("strided")};
  for (nb::handle key : module.attr("__dict__").attr("values")()) {
    if (!nb::isinstance(key, module.attr("dtype"))) continue;
    const std::string text = TextOf(key);
    if (const std::optional<DType> dtype = DTypeFromTorch(text)) made->dtypes.emplace(key.ptr(), *dtype);
    if (text == "torch.float4_e2m1fn_x2") {
      made->dtypes.emplace(key.ptr(), DType::kF4);
      made->packed_f4 = key.ptr();
    }
  }
  return torch = made;
}

// Whether the storage reaches to the tensor's last element: it may have been freed or cut since.
void CheckStorage(const std::string& name, nb::handle tensor, const Memory& memory, std::int64_t item_bytes) {
  static const Name storage("untyped_storage"), nbytes("nbytes"), offset("storage_offset");
  std::int64_t last = nb::cast<std::int64_t>(offset.Call(tensor));
  for (std::size_t d = 0; d < memory.shape.size(); ++d) {
    if (memory.shape[d] == 0) return;
    last += (memory.shape[d] - 1) * memory.strides[d];
  }
  const auto held = nb::cast<std::int64_t>(nbytes.Call(storage.Call(tensor)));
  if (held >= (last + 1) * item_bytes) return;
  Refuse(name, "a storage of " + std::to_string(held) + " bytes where it needs " +
                   std::to_string((last + 1) * item_bytes) + ": was it freed?");
}

// Refuses what is no plain memory of its own.
void CheckPlain(const std::string& name, const Torch& torch, nb::handle tensor, DType dtype) {
  static const Name layout("layout"), is_conj("is_conj"), is_neg("is_neg"), is_nested("is_nested");
  if (is_nested.Is(tensor)) Refuse(name, "a nested one");
  if (!layout.Of(tensor).is(torch.strided)) Refuse(name, "one of layout " + TextOf(layout.Of(tensor)));
  if (dtype == DType::kC64 && is_conj.CallIs(tensor)) Refuse(name, "a lazily conjugated view: call resolve_conj()");
  if (is_neg.CallIs(tensor)) Refuse(name, "a lazily negated view: call resolve_neg()");
  const bool is_subclass = !tensor.type().is(torch.tensor_type) && !tensor.type().is(torch.parameter_type);
  if (is_subclass && nb::hasattr(tensor, "placements")) {
    Refuse(name, "a DTensor: publish the module or its state_dict, or to_local()");
  }
}

Device DeviceOf(const std::string& name, nb::handle tensor) {
  static const Name is_cpu("is_cpu"), is_cuda("is_cuda"), device("device"), index("index");
  if (is_cpu.Is(tensor)) return {};
  if (!is_cuda.Is(tensor)) Refuse(name, "one on " + TextOf(device.Of(tensor)));
  return {Device::Kind::kCuda, nb::cast<int>(index.Of(device.Of(tensor)))};
}

// Of a float4_e2m1fn_x2, as torch and DLPack have it, whose every element is two.
void CountPairs(const std::string& name, Memory& memory) {
  if (memory.shape.empty()) Refuse(name, "a float4_e2m1fn_x2 without dimensions");
  if (!IsContiguous(memory)) Refuse(name, "a strided float4_e2m1fn_x2");
  memory.shape.back() *= 2;
  for (std::size_t d = 0; d + 1 < memory.strides.size(); ++d) memory.strides[d] *= 2;
}

std::int64_t ElementsOf(const Memory& memory) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : memory.shape) elements *= extent;
  return elements;
}

Memory ReadTorch(const std::string& name, const Torch& torch, nb::handle tensor) {
  static const Name dtype("dtype"), shape("shape"), stride("stride"), data_ptr("data_ptr");
  const nb::object type = dtype.Of(tensor);
  const auto known = torch.dtypes.find(type.ptr());
  if (known == torch.dtypes.end()) {
    if (nb::cast<bool>(tensor.attr("is_quantized"))) Refuse(name, "a quantized one");
    throw Error(ErrorCode::kUnsupported, "'" + name + "': Layercast has no dtype for " + TextOf(type));
  }
  CheckPlain(name, torch, tensor, known->second);
  Memory memory{.dtype = known->second,
                .shape = IntegersOf(shape.Of(tensor)),
                .strides = IntegersOf(stride.Call(tensor)),
                .device = DeviceOf(name, tensor),
                .keeper = nb::borrow(tensor)};
  const bool pairs = type.ptr() == torch.packed_f4;
  CheckStorage(name, tensor, memory, pairs ? 1 : BitsPerElement(memory.dtype) / 8);
  memory.address = nb::cast<std::uintptr_t>(data_ptr.Call(tensor));
  if (memory.address == 0 && ElementsOf(memory) > 0) Refuse(name, "a " + TypeOf(tensor) + ", which has none");
  if (pairs) CountPairs(name, memory);
  return memory;
}

// What torch itself refuses to tell of a tensor, such as one of a transform (vmap), is said with the tensor's name.
Memory MemoryOfTorch(const std::string& name, const Torch& torch, nb::handle tensor) {
  try {
    return ReadTorch(name, torch, tensor);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    Refuse(name, "a " + TypeOf(tensor) + ": " + TextOf(error.value()));
  }
}

// ---- numpy, and DLPack ----------------------------------------------------------------------------------------------

// numpy's and ml_dtypes' names, where they are not torch's.
std::optional<DType> DTypeFromNumpy(const std::string& name) {
  if (name == "bool") return DType::kBool;
  if (name == "complex64") return DType::kC64;
  if (name == "float8_e8m0fnu") return DType::kF8E8M0;
  return DTypeFromTorch(name);
}

Memory MemoryOfNumpy(const std::string& name, nb::handle array);

// ml_dtypes has one element in a byte.
Memory MemoryOfNumpyF4(const std::string& name, nb::handle array) {
  const Shape shape = IntegersOf(array.attr("shape"));
  if (shape.empty() || shape.back() % 2 != 0) Refuse(name, "an odd number of float4_e2m1fn in a row");
  Memory memory = MemoryOfNumpy(name, nb::module_::import_("layercast.dtypes").attr("packed_f4")(array));
  memory.dtype = DType::kF4;
  memory.writable = false;  // a copy
  CountPairs(name, memory);
  return memory;
}

Memory MemoryOfNumpy(const std::string& name, nb::handle array) {
  const std::string type = nb::cast<std::string>(array.attr("dtype").attr("name"));
  if (type == "float4_e2m1fn") return MemoryOfNumpyF4(name, array);
  const std::optional<DType> dtype = DTypeFromNumpy(type);
  if (!dtype || !nb::cast<bool>(array.attr("dtype").attr("isnative"))) {
    throw Error(ErrorCode::kUnsupported, "'" + name + "': Layercast has no dtype for numpy's " + type +
                                             (dtype ? " in the other byte order" : ""));
  }
  Memory memory{.dtype = *dtype, .shape = IntegersOf(array.attr("shape")), .keeper = nb::borrow(array)};
  const auto item = nb::cast<std::int64_t>(array.attr("itemsize"));
  for (const std::int64_t bytes : IntegersOf(array.attr("strides"))) {
    if (bytes % item != 0)
      Refuse(name, "strides of " + std::to_string(bytes) + " bytes between elements of " + std::to_string(item));
    memory.strides.push_back(bytes / item);
  }
  memory.address = nb::cast<std::uintptr_t>(array.attr("ctypes").attr("data"));
  memory.writable = nb::cast<bool>(array.attr("flags").attr("writeable"));
  return memory;
}

Memory MemoryOfDlpack(const std::string& name, nb::handle object) {
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(object, array)) Refuse(name, "a " + TypeOf(object));
  const std::optional<DType> dtype = DTypeFromDlpack(array.dtype());
  if (!dtype) {
    throw Error(ErrorCode::kUnsupported, "'" + name + "': Layercast has no dtype for DLPack's code " +
                                             std::to_string(array.dtype().code) + " of " +
                                             std::to_string(array.dtype().bits) + " bits in " +
                                             std::to_string(array.dtype().lanes) + " lanes");
  }
  if (array.device_type() != nb::device::cpu::value) Refuse(name, "one on a device, through DLPack");
  Memory memory{.dtype = *dtype, .writable = false, .keeper = nb::cast(array)};
  for (std::size_t d = 0; d < array.ndim(); ++d) {
    memory.shape.push_back(static_cast<std::int64_t>(array.shape(d)));
    memory.strides.push_back(array.stride(d));
  }
  memory.address = reinterpret_cast<std::uintptr_t>(array.data());
  if (array.dtype().lanes > 1) CountPairs(name, memory);
  return memory;
}

bool IsNumpy(nb::handle object) {
  const nb::object numpy = Imported("numpy");
  return !numpy.is_none() && nb::isinstance(object, numpy.attr("ndarray"));
}

Memory MemoryOf(const std::string& name, nb::handle object) {
  const Torch* torch = ImportedTorch();
  if (torch != nullptr && nb::isinstance(object, torch->tensor_type)) return MemoryOfTorch(name, *torch, object);
  return IsNumpy(object) ? MemoryOfNumpy(name, object) : MemoryOfDlpack(name, object);
}

// The same values, row-major and on the host.
nb::object Packed(const std::string& name, nb::handle object) {
  const Torch* torch = ImportedTorch();
  if (torch != nullptr && nb::isinstance(object, torch->tensor_type)) {
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

void BindTensors(nb::module_& module) {
  module.def("ndarray", DlpackOf);
  // For tests of the way back and forth: (dtype, shape, bytes) of what a tensor was read as.
  module.def(
      "tensor_bytes",
      [](const std::string& name, nb::handle tensor) {
        const NamedTensor named = TensorFrom(name, tensor);
        return nb::make_tuple(std::string(SafetensorsName(named.tensor.dtype)), nb::tuple(nb::cast(named.tensor.shape)),
                              BytesOf(named));
      },
      nb::arg("name"), nb::arg("tensor").none());
}

}  // namespace layercast::python
