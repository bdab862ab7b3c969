// The scales of the FP8 recipes, as RECIPES.md defines them: dequantization scales in fp32, so that
// `w ~ q * s`. Used by the kernels and by the slow reference alike.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace layercast {

inline constexpr float kFp8Max = 448.0F;  // of e4m3fn
inline constexpr std::int64_t kFp8Block = 128;

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

}  // namespace layercast
