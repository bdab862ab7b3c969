// Which kernel quantizes by which recipe on a CUDA device. Used by streams that quantize there.
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
  CudaTensorAmax amax;    // of the whole weight, if the recipe needs it (of_whole_amax)
  const float* row_amax;  // null if each row's own is used
  std::span<const KernelTensorView> outputs;
  CudaFaultWord* fault;
  CUstream_st* stream;
};

struct CudaRecipe {
  std::string_view name;
  bool of_whole_amax;
  void (*quantize)(const CudaQuantization& quantization);
};

// The recipe called `name`, which must not be `none`, as that quantizes nothing. Throws kUnsupported, naming it, if
// there are no kernels for it.
const CudaRecipe& CudaRecipeOf(std::string_view name);

}  // namespace layercast
