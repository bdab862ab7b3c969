// Casts between the floating-point types that weights come in, bit for bit as torch's `.to(dtype)`: to nearest, ties to
// even; NaN stays NaN; fp64 goes through fp32 on its way to 16 bits. Used if a trainer's dtype is not the model's.
#pragma once

#include <cstddef>

#include "layercast/dtype.h"

namespace layercast {

// True for any pair of f16, bf16, f32 and f64.
bool CanCast(DType from, DType to);

// Casts `count` elements. Neither address need be aligned. The two ranges must not overlap. Requires CanCast. Returns
// false if a result is not finite. (If `to` holds all numbers that `from` does, that is not looked at: always true.)
bool Cast(DType from, const std::byte* source, DType to, std::byte* destination, std::size_t count);

// Rounds one value to `to` and back. A tensor's largest magnitude becomes this when the tensor is cast.
float RoundTo(DType to, float value);

}  // namespace layercast
