// A recipe's kernel tensors as CUDA kernels read them. Used by streams that dequantize on a device.
#pragma once

#include <span>

#include "engine_side/quant/cuda_kernels.h"
#include "engine_side/quant/recipe.h"

namespace layercast {

// `tensors` are in device memory, as Recipe::KernelTensors lists them.
CudaCodes CodesOf(const CodeFormat& format, std::span<const KernelTensorView> tensors);

}  // namespace layercast
