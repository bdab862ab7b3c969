// Casts between the floating-point types that weights come in, with the bits of torch's `.to(dtype)`: to nearest, ties
// to even; NaN stays NaN; fp64 goes through fp32 on its way to 16 bits. Used where a trainer's dtype is not the
// model's.
#pragma once

#include <cstddef>

#include "layercast/dtype.h"

namespace layercast {

// f16, bf16, f32 and f64, in any pair.
bool CanCast(DType from, DType to);

// `count` elements. Neither address need be aligned; the two ranges do not overlap. Requires CanCast.
void Cast(DType from, const std::byte* source, DType to, std::byte* destination, std::size_t count);

// One value, rounded to `to` and back: what a largest magnitude becomes when its tensor is cast.
float RoundTo(DType to, float value);

}  // namespace layercast
