// Dequantizes what a checkpoint on disk holds as codes, and refuses what the model's dtype cannot hold. Used where such
// tensors are turned into full precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine_side/quant/dequantize.h"

namespace layercast {

// Dequantize for matrix number `matrix` of a stack of `matrices`, or for the only one. Throws kCorrupt, naming the
// tensor of the codes and the place, if a result is not finite.
void DequantizeChecked(const std::string& tensor, std::int64_t matrix, std::int64_t matrices,
                       const QuantizedWeight& weight, DType dtype, std::byte* values, WorkerPool& pool);

}  // namespace layercast
