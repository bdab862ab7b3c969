// The FP8 recipes written plainly from their definition, element by element. The kernels are compared with this byte
// for byte, and fall back to its cast where there is no vector unit.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine_side/quant/recipe.h"

namespace layercast {

// fp32 to e4m3fn, to nearest, ties to even, as torch casts: above 464 and for infinity and NaN the result is NaN.
std::uint8_t EncodeE4M3(float value);

struct ReferenceResult {
  std::vector<std::uint8_t> values;  // row-major
  std::vector<float> scales;         // row-major; [1], [rows] or [row blocks, column blocks]
};

// The whole weight by the recipe called `name`, one of the fp8 ones. The weight is finite.
ReferenceResult QuantizeSlowly(std::string_view name, const RecipeOptions& options, const MatrixView& weight,
                               const AmaxInput& amax);

}  // namespace layercast
