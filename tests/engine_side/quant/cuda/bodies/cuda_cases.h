// What the tests of CUDA kernels share, on the host and on a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine_side/quant/cuda_kernels.h"
#include "tests/engine_side/quant/recipes/hard_weights.h"
#include "tests/engine_side/quant/recipes/quantized.h"
#include "tests/engine_side/quant/recipes/recipe_cases.h"

namespace layercast {

inline constexpr DType kWeightTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

inline CudaMatrix OfView(const MatrixView& view, std::int64_t first_row) {
  return {view.dtype, view.data, view.rows, view.cols, view.row_stride, first_row};
}

inline Quantized ByReference(const RecipeCase& c, const Recipe& recipe, const MatrixView& weight,
                             const AmaxInput& amax) {
  if (c.name != kCopyCase.name) return QuantizeWholeSlowly(recipe, c.options, weight, amax);
  Quantized copy(recipe, weight.dtype, weight.rows, weight.cols);
  const std::int64_t row_bytes = weight.cols * BitsPerElement(weight.dtype) / 8;
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    std::copy_n(weight.row(r), row_bytes, copy.tensors[0].data() + r * row_bytes);
  }
  return copy;
}

// Columns of rows with a scale each: that one warp holds, blocks of few and of most threads, and no block.
inline constexpr std::int64_t kRowLengths[] = {1024,  1032,  2056,  4104,  5120,  8192,  8200,
                                               16384, 16392, 18944, 28672, 32768, 32776, 70000};

// All 2^16 but those that are not finite.
inline Weight EveryBf16(std::uint32_t below) {
  return MakeWeight(DType::kBF16, 256, 256, 0, [=](std::int64_t r, std::int64_t c) {
    const auto bits = static_cast<std::uint32_t>(r * 256 + c);
    return (bits & 0x7fff) < below ? bits : 0U;
  });
}

}  // namespace layercast
