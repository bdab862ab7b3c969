#include "engine_side/quant/cuda/cuda_recipes.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "layercast/error.h"

namespace layercast {
namespace {

template <class T>
T* Output(const CudaQuantization& q, std::size_t index) {
  return reinterpret_cast<T*>(q.outputs[index].data);
}
std::uint8_t* Codes(const CudaQuantization& q) { return Output<std::uint8_t>(q, 0); }
std::uint8_t* ByteScales(const CudaQuantization& q) { return Output<std::uint8_t>(q, 1); }
float* Scales(const CudaQuantization& q) { return Output<float>(q, 1); }

constexpr CudaRecipe kRecipes[] = {
    {"fp8_per_tensor", true,
     [](const CudaQuantization& q) { CudaFp8PerTensor(q.piece, q.amax, Codes(q), Scales(q), q.fault, q.stream); }},
    {"fp8_per_channel", false,
     [](const CudaQuantization& q) { CudaFp8PerChannel(q.piece, q.row_amax, Codes(q), Scales(q), q.fault, q.stream); }},
    {"int8_per_channel", false,
     [](const CudaQuantization& q) {
       CudaInt8PerChannel(q.piece, q.row_amax, Codes(q), Scales(q), q.fault, q.stream);
     }},
    {"fp8_per_block", false,
     [](const CudaQuantization& q) {
       CudaFp8PerBlock(q.piece, q.options.power_of_two_scales, Codes(q), Scales(q), q.fault, q.stream);
     }},
    {"mxfp8", false, [](const CudaQuantization& q) { CudaMxfp8(q.piece, Codes(q), ByteScales(q), q.fault, q.stream); }},
    {"mxfp4", false, [](const CudaQuantization& q) { CudaMxfp4(q.piece, Codes(q), ByteScales(q), q.fault, q.stream); }},
    {"nvfp4", true,
     [](const CudaQuantization& q) {
       CudaNvfp4(q.piece, q.amax, Codes(q), ByteScales(q), Output<float>(q, 2), q.fault, q.stream);
     }},
};

}  // namespace

const CudaRecipe& CudaRecipeOf(std::string_view name) {
  const auto* const found = std::ranges::find(kRecipes, name, &CudaRecipe::name);
  if (found != std::end(kRecipes)) return *found;
  throw Error(ErrorCode::kUnsupported, "recipe '" + std::string(name) + "' has no kernels for CUDA devices");
}

}  // namespace layercast
