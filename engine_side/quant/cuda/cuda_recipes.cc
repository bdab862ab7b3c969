// Which kernel quantizes by which recipe on a CUDA device.
#include <algorithm>
#include <iterator>
#include <string>

#include "engine_side/quant/cuda_kernels.h"
#include "layercast/error.h"

namespace layercast {

using LoadKernels = void();

// Each is in the file that compiles its kernels, because a kernel can be named only there: those of recipes in the one
// that is named after the recipe.
CudaKernel CudaFp8PerTensor, CudaFp8PerChannel, CudaInt8PerChannel, CudaFp8PerBlock, CudaMxfp8, CudaMxfp4, CudaNvfp4;
LoadKernels LoadCudaFp8PerTensor, LoadCudaFp8PerChannel, LoadCudaInt8PerChannel, LoadCudaFp8PerBlock, LoadCudaMxfp8,
    LoadCudaMxfp4, LoadCudaNvfp4, LoadCudaCopy, LoadCudaRescale, LoadCudaDequantize;

namespace {

struct CudaRecipe {
  std::string_view name;
  CudaKernel* quantize;
  LoadKernels* load;
};

constexpr CudaRecipe kRecipes[] = {
    {"fp8_per_tensor", CudaFp8PerTensor, LoadCudaFp8PerTensor},
    {"fp8_per_channel", CudaFp8PerChannel, LoadCudaFp8PerChannel},
    {"int8_per_channel", CudaInt8PerChannel, LoadCudaInt8PerChannel},
    {"fp8_per_block", CudaFp8PerBlock, LoadCudaFp8PerBlock},
    {"mxfp8", CudaMxfp8, LoadCudaMxfp8},
    {"mxfp4", CudaMxfp4, LoadCudaMxfp4},
    {"nvfp4", CudaNvfp4, LoadCudaNvfp4},
};

}  // namespace

CudaKernel& CudaKernelOf(std::string_view name) {
  const auto* const found = std::ranges::find(kRecipes, name, &CudaRecipe::name);
  if (found != std::end(kRecipes)) return *found->quantize;
  throw Error(ErrorCode::kUnsupported, "recipe '" + std::string(name) + "' has no kernels for CUDA devices");
}

void LoadCudaKernels() {
  for (const CudaRecipe& recipe : kRecipes) recipe.load();
  LoadCudaCopy();
  LoadCudaRescale();
  LoadCudaDequantize();
}

}  // namespace layercast
