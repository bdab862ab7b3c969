#include "python/native/memory/python_memory.h"

#include "layercast/error.h"

namespace layercast::python {

void Refuse(const std::string& name, const std::string& got) {
  throw Error(ErrorCode::kInvalidArgument,
              "'" + name + "': expected a dense tensor with memory of its own, got " + got);
}

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

std::vector<std::int64_t> IntegersOf(nb::handle tuple) {
  const Py_ssize_t size = PyTuple_Size(tuple.ptr());
  if (size < 0) throw nb::python_error();
  std::vector<std::int64_t> integers(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    integers[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i));
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return integers;
}

std::string TextOf(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }
std::string TypeOf(nb::handle object) { return TextOf(object.type().attr("__name__")); }

nb::object Imported(const char* name) {
  nb::object modules = nb::module_::import_("sys").attr("modules");
  return modules.attr("get")(name);
}

void CountPairs(const std::string& name, Memory& memory) {
  if (memory.shape.empty()) Refuse(name, "a float4_e2m1fn_x2 without dimensions");
  if (!IsContiguous(memory)) Refuse(name, "a strided float4_e2m1fn_x2");
  memory.shape.back() *= 2;
  for (std::size_t d = 0; d + 1 < memory.strides.size(); ++d) memory.strides[d] *= 2;
}

}  // namespace layercast::python
