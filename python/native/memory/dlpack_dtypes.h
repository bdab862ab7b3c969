// DLPack's types of elements as ours. Used where tensors come from Python, and go there.
#pragma once

#include <nanobind/ndarray.h>

#include <optional>

#include "layercast/dtype.h"
#include "python/native/native.h"

namespace layercast::python {

// Empty: Layercast has no such dtype. Two lanes are of F4 alone, which DLPack has in pairs.
std::optional<DType> DTypeFromDlpack(nb::dlpack::dtype type);

// Empty: DLPack has no such type.
std::optional<nb::dlpack::dtype> DlpackFromDType(DType dtype);

}  // namespace layercast::python
