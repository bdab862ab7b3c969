// int8_per_channel: one scale for each output row, over the columns of all ranks.
//   s = amax_row / 127; q = clamp(rint(w / s), -127, 127), ties to even; a row of s = 0 is q = 0
#include "engine_side/quant/cpu/kernels.h"
#include "engine_side/quant/recipes/per_channel.h"
#include "engine_side/quant/recipes/recipe_parts.h"

namespace layercast {

std::unique_ptr<const Recipe> MakeInt8PerChannel() {
  return std::make_unique<PerChannel>("int8_per_channel", DType::kI8, PerChannelKernels{Int8Rows, Int8RowsGiven});
}

}  // namespace layercast
