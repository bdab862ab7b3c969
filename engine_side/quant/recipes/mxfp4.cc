// mxfp4: one power of two for each 32 columns of a row, the smallest that is at least amax_block / 6.
//   q = cvt_e2m1(w / s); s is stored as its exponent's byte (E8M0)
//
// Two values share a byte, the even column's in the low half, as in nvfp4: u8 [rows, cols / 2].
#include "engine_side/quant/cpu/kernels.h"
#include "engine_side/quant/recipes/mx.h"
#include "engine_side/quant/recipes/recipe_parts.h"

namespace layercast {

std::unique_ptr<const Recipe> MakeMxfp4() { return std::make_unique<Mx>("mxfp4", DType::kF4, Mxfp4Blocks); }

}  // namespace layercast
