// What a whole weight becomes under a recipe. A recipe handles a single matrix. A weight of three dimensions is a stack
// of them (experts): each is quantized on its own, and their kernel tensors are stacked. Used by all that lays out or
// fills kernel tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/quant/recipe.h"
#include "layercast/tensor.h"

namespace layercast {

// Value.
struct MatrixStack {
  std::int64_t count = 1;
  std::int64_t rows = 0, cols = 0;  // of each matrix

  // Throws kInvalidArgument for anything but two or three dimensions.
  static MatrixStack Of(const Shape& shape);
};

// The kernel tensors of a weight, with full names: "a.w13_weight" [experts, rows, cols] becomes "a.w13_weight" and, for
// example, "a.w13_weight_scale" [experts, rows, 1]. If a matrix has a single number, a stack has [experts]. Throws what
// Recipe::KernelTensors throws.
std::vector<TensorSpec> KernelTensorsOf(const TensorSpec& weight, const Recipe& recipe);

// The part of a kernel tensor that belongs to matrix number `index`. `weight` is the weight's shape. `tensor` is as
// KernelTensorsOf lists it, and lies at `memory`.
KernelTensorView OfMatrix(std::int64_t index, const Shape& weight, const TensorSpec& tensor, std::byte* memory);

}  // namespace layercast
