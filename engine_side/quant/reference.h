// The recipes written plainly from their definition, element by element. Tests compare the kernels with them, byte for
// byte.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "engine_side/quant/recipe.h"

namespace layercast {

// The bytes of every kernel tensor of the whole weight, in the order of KernelTensors, by the recipe called `name`,
// which must not be "none". The weight must be finite.
std::vector<std::vector<std::byte>> QuantizeSlowly(std::string_view name, const RecipeOptions& options,
                                                   const MatrixView& weight, const AmaxInput& amax);

}  // namespace layercast
