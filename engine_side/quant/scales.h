// The scales of the recipes, as RECIPES.md defines them: dequantization scales in fp32, so that `w ~ q * s`. Used by
// the kernels, including those for CUDA, and by the slow reference.
#pragma once

#include <cstdint>

#include "src/base/bytes/float_bits.h"
#include "src/base/digest/host_device.h"

namespace layercast {

inline constexpr float kFp8Max = 448.0F;   // the largest value of e4m3fn
inline constexpr float kFp4Max = 6.0F;     // the largest value of e2m1
inline constexpr float kInt8Max = 127.0F;  // -128 is not used

inline constexpr std::int64_t kFp8Block = 128;   // rows and columns
inline constexpr std::int64_t kMxBlock = 32;     // columns
inline constexpr std::int64_t kNvfp4Block = 16;  // columns

// fp8_per_tensor: `amax / 448`. There is no floor; see IsZeroTensor.
LAYERCAST_HOST_DEVICE inline float TensorScale(float amax) { return amax / kFp8Max; }

// fp8_per_tensor: true if `1/s` would be infinite. The weight is then stored as q = 0, s = 0.
LAYERCAST_HOST_DEVICE inline bool IsZeroTensor(float amax) { return !IsFinite(1.0F / TensorScale(amax)); }

// fp8_per_channel: `max(amax / 448, 1 / (448 * 512))`.
LAYERCAST_HOST_DEVICE inline float ChannelScale(float amax) {
  constexpr float kFloor = 1.0F / (kFp8Max * 512.0F);
  const float scale = amax / kFp8Max;
  return scale < kFloor ? kFloor : scale;
}

// The smallest power of two that is not below `scale`, a positive normal number.
LAYERCAST_HOST_DEVICE inline float RoundUpToPowerOfTwo(float scale) {
  constexpr std::uint32_t kMantissa = 0x007fffffU;
  return FloatOfBits((BitsOfFloat(scale) + kMantissa) & ~kMantissa);
}

// fp8_per_block: `max(amax, 1e-4) / 448`, rounded up to a power of two if asked for (UE8M0, still as fp32 here).
LAYERCAST_HOST_DEVICE inline float BlockScale(float amax, bool power_of_two) {
  constexpr float kFloor = 1e-4F;
  const float scale = (amax < kFloor ? kFloor : amax) / kFp8Max;
  return power_of_two ? RoundUpToPowerOfTwo(scale) : scale;
}

// The largest value of a type of element, 1.m * 2^exponent; `mantissa` is m, where fp32 has it.
struct MxElement {
  int exponent;
  std::uint32_t mantissa;
};
inline constexpr MxElement kMxfp8Element{8, 0x00600000U};  // 448 = 1.75 * 2^8
inline constexpr MxElement kMxfp4Element{2, 0x00400000U};  // 6 = 1.5 * 2^2

// mxfp8, mxfp4: the biased exponent (E8M0) of the smallest power of two >= amax / the element's largest value. It is
// never below 2^-127 and never above 2^126, and no finite amax needs more.
LAYERCAST_HOST_DEVICE inline std::uint8_t MxExponent(float amax, MxElement largest) {
  const std::uint32_t bits = BitsOfFloat(amax);
  const int above = (bits & 0x007fffffU) > largest.mantissa ? 1 : 0;
  const int exponent = static_cast<int>(bits >> 23) - largest.exponent + above;
  return static_cast<std::uint8_t>(exponent < 0 ? 0 : exponent > 253 ? 253 : exponent);
}

// 2^(127 - exponent), which the weights of a block are multiplied by; exponent <= 253.
LAYERCAST_HOST_DEVICE inline float MxFactor(std::uint8_t exponent) {
  return FloatOfBits((254U - std::uint32_t{exponent}) << 23);
}

// nvfp4: the factor g that makes the largest block scale 448 and the largest value 6.
LAYERCAST_HOST_DEVICE inline float Nvfp4GlobalFactor(float amax) { return kFp8Max * kFp4Max / amax; }

// nvfp4: true if a factor `g / sf` could be infinite (sf is at least 2^-9). Everything is then stored as 0.
LAYERCAST_HOST_DEVICE inline bool IsZeroNvfp4(float amax) { return !IsFinite(Nvfp4GlobalFactor(amax) * 512.0F); }

// int8_per_channel: `amax / 127`. There is no floor: it is 0 if a row's quotients would be infinite.
LAYERCAST_HOST_DEVICE inline float Int8Scale(float amax) { return amax / kInt8Max; }

}  // namespace layercast
