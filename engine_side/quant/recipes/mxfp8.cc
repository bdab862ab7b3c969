// mxfp8: one power of two for each 32 columns of a row, the smallest that is at least amax_block / 448.
//   q = cvt(w / s); s is stored as its exponent's byte (E8M0)
#include "engine_side/quant/cpu/kernels.h"
#include "engine_side/quant/recipes/mx.h"
#include "engine_side/quant/recipes/recipe_parts.h"

namespace layercast {

std::unique_ptr<const Recipe> MakeMxfp8() { return std::make_unique<Mx>("mxfp8", DType::kF8E4M3, Mxfp8Blocks); }

}  // namespace layercast
