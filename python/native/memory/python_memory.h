// What Python's objects say about their memory, and how they are asked. Used by what reads each kind of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layercast/tensor.h"
#include "python/native/native.h"

namespace layercast::python {

// The keeper owns the memory. Value.
struct Memory {
  DType dtype = DType::kF32;
  Shape shape{};
  std::vector<std::int64_t> strides{};  // in elements
  std::uintptr_t address = 0;
  Device device{};
  bool writable = true;
  nb::object keeper;
};

// Throws kInvalidArgument: what was got is no memory that could be read.
[[noreturn]] void Refuse(const std::string& name, const std::string& got);
bool IsContiguous(const Memory& memory);
// Of a float4_e2m1fn_x2, as torch and DLPack have it, whose every element is two.
void CountPairs(const std::string& name, Memory& memory);

std::vector<std::int64_t> IntegersOf(nb::handle tuple);
std::string TextOf(nb::handle object);
std::string TypeOf(nb::handle object);
// The module if the program has imported it, or None: Layercast imports neither torch nor numpy by itself.
nb::object Imported(const char* name);

bool IsTorch(nb::handle object);
bool IsNumpy(nb::handle object);
// Throw as TensorFrom (python_tensors.h).
Memory MemoryOfTorch(const std::string& name, nb::handle tensor);
Memory MemoryOfNumpy(const std::string& name, nb::handle array);
Memory MemoryOfDlpack(const std::string& name, nb::handle object);

}  // namespace layercast::python
