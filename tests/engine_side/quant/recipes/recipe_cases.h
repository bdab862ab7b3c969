// The recipes that kernels are tested with: those of the CPU, and those of CUDA on the host and on a device.
#pragma once

#include <cstdint>
#include <span>

#include "engine_side/quant/recipe.h"

namespace layercast {

struct RecipeCase {
  const char* name;
  RecipeOptions options;
  std::int64_t column_unit = 1;

  // The nearest number of columns that the recipe takes.
  std::int64_t Cols(std::int64_t cols) const { return (cols + column_unit - 1) / column_unit * column_unit; }
};
inline constexpr RecipeCase kCopyCase{"none", {}};
inline constexpr RecipeCase kTensorCase{"fp8_per_tensor", {}};
inline constexpr RecipeCase kChannelCase{"fp8_per_channel", {}};
inline constexpr RecipeCase kBlockCase{"fp8_per_block", {}};
inline constexpr RecipeCase kPowerCase{"fp8_per_block", {true}};
inline constexpr RecipeCase kMxfp8Case{"mxfp8", {}, 32};
inline constexpr RecipeCase kMxfp4Case{"mxfp4", {}, 32};
inline constexpr RecipeCase kNvfp4Case{"nvfp4", {}, 16};
inline constexpr RecipeCase kInt8Case{"int8_per_channel", {}};
inline constexpr RecipeCase kRecipeCases[] = {kCopyCase,  kTensorCase, kChannelCase, kBlockCase, kPowerCase,
                                              kMxfp8Case, kMxfp4Case,  kNvfp4Case,   kInt8Case};
inline constexpr auto kQuantizingCases = std::span(kRecipeCases).subspan<1>();  // all but the copy

}  // namespace layercast
