// The codes of single values, by the definition of each type. Slow: for the reference, for tables, and for the few
// values that vector code does not handle.
#pragma once

#include <cstdint>

namespace layercast {

// fp32 to e4m3fn, to nearest, ties to even, as torch casts. Above 464, and for infinity and NaN, the result is NaN.
std::uint8_t EncodeE4M3(float value);

// fp32 to e2m1 (0, 0.5, 1, 1.5, 2, 3, 4, 6), to nearest, ties to the even mantissa, saturating; the sign is bit 3.
std::uint8_t EncodeE2M1(float value);

// clamp(rint(weight / scale), -127, 127), ties to even, as two's complement; 0 for scale 0.
std::uint8_t EncodeInt8(float weight, float scale);

}  // namespace layercast
