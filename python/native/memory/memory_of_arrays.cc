// Memory of numpy's arrays, those of ml_dtypes too, and of whatever else speaks DLPack.
#include <nanobind/ndarray.h>

#include <optional>

#include "layercast/error.h"
#include "python/native/memory/dlpack_dtypes.h"
#include "python/native/memory/python_memory.h"

namespace layercast::python {
namespace {

// numpy's and ml_dtypes' names, where they are not torch's.
std::optional<DType> DTypeFromNumpy(const std::string& name) {
  if (name == "bool") return DType::kBool;
  if (name == "complex64") return DType::kC64;
  if (name == "float8_e8m0fnu") return DType::kF8E8M0;
  return DTypeFromTorch(name);
}

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

}  // namespace

bool IsNumpy(nb::handle object) {
  const nb::object numpy = Imported("numpy");
  return !numpy.is_none() && nb::isinstance(object, numpy.attr("ndarray"));
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

}  // namespace layercast::python
