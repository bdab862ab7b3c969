// fp8_per_channel: one scale for each output row, over the columns of all ranks.
//   s = max(amax_row / 448, 1 / (448 * 512)); q = cvt(clamp(w / s, -448, 448))
#include "engine_side/quant/cpu/kernels.h"
#include "engine_side/quant/recipes/per_channel.h"
#include "engine_side/quant/recipes/recipe_parts.h"

namespace layercast {

std::unique_ptr<const Recipe> MakeFp8PerChannel() {
  return std::make_unique<PerChannel>("fp8_per_channel", DType::kF8E4M3, PerChannelKernels{Fp8Rows, Fp8RowsGiven});
}

}  // namespace layercast
