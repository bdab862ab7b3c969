// The scales of the recipes, as RECIPES.md defines them: dequantization scales in fp32, so that `w ~ q * s`.
// Used by the kernels and by the slow reference alike.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace layercast {

inline constexpr float kFp8Max = 448.0F;   // of e4m3fn
inline constexpr float kFp4Max = 6.0F;     // of e2m1
inline constexpr float kInt8Max = 127.0F;  // -128 is not used

inline constexpr std::int64_t kFp8Block = 128;   // rows and columns
inline constexpr std::int64_t kMxfp8Block = 32;  // columns
inline constexpr std::int64_t kNvfp4Block = 16;  // columns

// `amax / 448`; there is no floor, see IsZeroTensor.
inline float TensorScale(float amax) { return amax / kFp8Max; }

// True where `1/s` would be infinite: the values are then stored as q = 0, s = 0.
inline bool IsZeroTensor(float amax) { return !std::isfinite(1.0F / TensorScale(amax)); }

// `max(amax / 448, 1 / (448 * 512))`
inline float ChannelScale(float amax) { return std::max(amax / kFp8Max, 1.0F / (kFp8Max * 512.0F)); }

// The smallest power of two that is not below `scale`, a positive normal number.
inline float RoundUpToPowerOfTwo(float scale) {
  constexpr std::uint32_t kMantissa = 0x007fffffU;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(scale) + kMantissa) & ~kMantissa);
}

// `max(amax, 1e-4) / 448`, rounded up to a power of two if asked for (UE8M0, here still as fp32).
inline float BlockScale(float amax, bool power_of_two) {
  const float scale = std::max(amax, 1e-4F) / kFp8Max;
  return power_of_two ? RoundUpToPowerOfTwo(scale) : scale;
}

// mxfp8: the biased exponent (E8M0) of the smallest power of two >= amax / 448, where 448 = 1.75 * 2^8. Never below
// 2^-127; a finite amax never needs more than 2^120.
inline std::uint8_t MxExponent(float amax) {
  constexpr std::uint32_t kMantissaOf1p75 = 0x00600000U;
  const auto bits = std::bit_cast<std::uint32_t>(amax);
  const auto exponent = static_cast<std::int32_t>(bits >> 23) - 8 + ((bits & 0x007fffffU) > kMantissaOf1p75 ? 1 : 0);
  return static_cast<std::uint8_t>(std::clamp(exponent, 0, 254));
}

// 2^(127 - exponent), which the weights of a block are multiplied by; exponent <= 253.
inline float MxFactor(std::uint8_t exponent) { return std::bit_cast<float>((254U - std::uint32_t{exponent}) << 23); }

// nvfp4: what makes the largest block scale 448 and the largest value 6.
inline float Nvfp4GlobalFactor(float amax) { return kFp8Max * kFp4Max / amax; }

// True where a factor `g / sf` could be infinite (sf is at least 2^-9): all is then stored as 0.
inline bool IsZeroNvfp4(float amax) { return !std::isfinite(Nvfp4GlobalFactor(amax) * 512.0F); }

// `amax / 127`; there is no floor: 0 for a row whose quotients would be infinite.
inline float Int8Scale(float amax) { return amax / kInt8Max; }

}  // namespace layercast
