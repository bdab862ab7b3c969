// What a whole weight becomes under a recipe. Recipes know one matrix; a weight of three dimensions is a stack of them
// (experts), each quantized alone, and its kernel tensors are theirs, stacked. Used by whoever lays out or fills kernel
// tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/quant/recipe.h"
#include "layercast/tensor.h"

namespace layercast {

// Value.
struct MatrixStack {
  std::int64_t count = 1;
  std::int64_t rows = 0, cols = 0;  // of each

  // Throws kInvalidArgument for anything but two or three dimensions.
  static MatrixStack Of(const Shape& shape);
};

// The kernel tensors of a weight, with full names: "a.w13_weight" [experts, rows, cols] becomes "a.w13_weight" and,
// say, "a.w13_weight_scale" [experts, rows, 1]. Where a matrix has one number, a stack has [experts]. Throws
// kInvalidArgument as Recipe::KernelTensors does.
std::vector<TensorSpec> KernelTensorsOf(const TensorSpec& weight, const Recipe& recipe);

// Of a kernel tensor of a weight of that shape, as KernelTensorsOf lists it and lying at `memory`: what matrix number
// `index` has of it.
KernelTensorView OfMatrix(std::int64_t index, const Shape& weight, const TensorSpec& tensor, std::byte* memory);

}  // namespace layercast
