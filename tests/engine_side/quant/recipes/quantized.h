// A recipe's outputs in memory of their own, for tests.
#pragma once

#include <string_view>
#include <vector>

#include "engine_side/quant/recipe.h"
#include "engine_side/quant/reference.h"

namespace layercast {

struct Quantized {
  std::vector<TensorSpec> specs;
  std::vector<std::vector<std::byte>> tensors;
  bool operator==(const Quantized&) const = default;

  // Filled with a byte that no recipe leaves behind everywhere.
  Quantized(const Recipe& recipe, DType dtype, std::int64_t rows, std::int64_t cols)
      : specs(recipe.KernelTensors(dtype, rows, cols)) {
    for (const TensorSpec& spec : specs) {
      tensors.emplace_back(static_cast<std::size_t>(spec.num_bytes()), std::byte{0xa5});
    }
  }

  std::vector<KernelTensorView> views() {
    std::vector<KernelTensorView> views;
    for (std::size_t i = 0; i < specs.size(); ++i)
      views.push_back(KernelTensorView::Of(specs[i].shape, tensors[i].data()));
    return views;
  }
};

inline Quantized QuantizeWhole(const Recipe& recipe, const MatrixView& weight, const AmaxInput& amax,
                               WorkerPool& pool) {
  Quantized result(recipe, weight.dtype, weight.rows, weight.cols);
  recipe.Quantize(weight, 0, amax, result.views(), pool);
  return result;
}

// The slow reference's result in the same form.
inline Quantized QuantizeWholeSlowly(const Recipe& recipe, const RecipeOptions& options, const MatrixView& weight,
                                     const AmaxInput& amax) {
  Quantized result(recipe, weight.dtype, weight.rows, weight.cols);
  result.tensors = QuantizeSlowly(recipe.name(), options, weight, amax);
  return result;
}

}  // namespace layercast
