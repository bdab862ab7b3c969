// Memory of torch's tensors. Layercast is built without torch: they are asked by names.
#include <optional>
#include <unordered_map>

#include "layercast/error.h"
#include "python/native/memory/python_memory.h"

namespace layercast::python {
namespace {

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

}  // namespace

bool IsTorch(nb::handle object) {
  const Torch* torch = ImportedTorch();
  return torch != nullptr && nb::isinstance(object, torch->tensor_type);
}

// What torch itself refuses to tell of a tensor, such as one of a transform (vmap), is said with the tensor's name.
Memory MemoryOfTorch(const std::string& name, nb::handle tensor) {
  try {
    return ReadTorch(name, *ImportedTorch(), tensor);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    Refuse(name, "a " + TypeOf(tensor) + ": " + TextOf(error.value()));
  }
}

}  // namespace layercast::python
