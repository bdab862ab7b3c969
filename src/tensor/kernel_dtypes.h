// The dtypes of weights that recipes' kernels take, on hosts and on devices, as do a device's kernels for magnitudes.
// What is of another dtype is taken whole, element by element, or refused.
#pragma once

#include "layercast/dtype.h"

namespace layercast {

inline bool IsKernelDType(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32; }

}  // namespace layercast
