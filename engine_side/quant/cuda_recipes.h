// Which kernel quantizes by which recipe on a CUDA device.
#pragma once

#include <span>
#include <string_view>

#include "engine_side/quant/cuda_kernels.h"
#include "engine_side/quant/recipe.h"

namespace layercast {

// A piece of a weight and what it becomes, all in device memory. Value; borrows.
struct CudaQuantization {
  CudaMatrix piece;
  RecipeOptions options;
  CudaTensorAmax amax;    // of the whole weight, where the recipe goes by it
  const float* row_amax;  // null: each row's own
  std::span<const KernelTensorView> outputs;
  CudaFaultWord* fault;
  CUstream_st* stream;
};

struct CudaRecipe {
  std::string_view name;
  bool of_whole_amax;
  void (*quantize)(const CudaQuantization& quantization);
};

// Any but `none`, which quantizes nothing. Throws kUnsupported, naming it, where there are no kernels for it.
const CudaRecipe& CudaRecipeOf(std::string_view name);

}  // namespace layercast
