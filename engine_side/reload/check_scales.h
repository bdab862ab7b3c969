// The one word on scales that cannot be, whoever brings them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "layercast/dtype.h"
#include "layercast/model/parameter.h"

namespace layercast {

// Throws kCorrupt "layer LAYER: 'TENSOR': expected finite scales above zero, got nan at element 3".
void CheckScales(std::span<const float> scales, Sign sign, std::string_view layer, std::string_view tensor);
// The same of `count` scales as they lie in memory: numbers of any kind but exponents (e8m0).
void CheckScales(DType dtype, const std::byte* scales, std::size_t count, Sign sign, std::string_view layer,
                 std::string_view tensor);

// As above, of fp32 scales that are not powers of two.
void CheckPowersOfTwo(std::span<const std::byte> scales, std::string_view layer, std::string_view tensor);

// Of exponents: the first that is NaN. -1: none.
std::ptrdiff_t FindNanExponent(std::span<const std::byte> exponents);

}  // namespace layercast
