// Checks for scales that cannot be right, in one place, whoever brings the scales.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "layercast/dtype.h"
#include "layercast/model/parameter.h"

namespace layercast {

// Throws kCorrupt "layer LAYER: 'TENSOR': expected finite scales above zero, got nan at element 3".
void CheckScales(std::span<const float> scales, Sign sign, std::string_view layer, std::string_view tensor);
// The same for `count` scales as they lie in memory: numbers of any dtype except exponents (e8m0).
void CheckScales(DType dtype, const std::byte* scales, std::size_t count, Sign sign, std::string_view layer,
                 std::string_view tensor);

// Throws kCorrupt, likewise, if fp32 scales are not powers of two.
void CheckPowersOfTwo(std::span<const std::byte> scales, std::string_view layer, std::string_view tensor);

// The index of the first NaN among exponents (e8m0), or -1 if there is none.
std::ptrdiff_t FindNanExponent(std::span<const std::byte> exponents);

}  // namespace layercast
