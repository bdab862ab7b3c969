// The codes of magnitudes, by integer and fp32 operations that are the same on every processor.
// engine_side/quant/codes.h has the definitions.
#pragma once

#include <cstdint>

#include "engine_side/quant/scales.h"
#include "src/device/cuda/words.cuh"

namespace layercast::cuda {

// fp32 to e4m3fn, for 0 <= p < 480: E = 2^max(exponent of p, -6), t = E * (2^20 + 19) + p. t's unit in the last place
// is 2^(exponent - 3), that of the code's mantissa, so the rounding of this sum is that of the cast; 19 is even, which
// keeps ties even, and takes the exponent's bias away. The low 7 bits are the code, those above are garbage.
LAYERCAST_HOST_DEVICE inline std::uint32_t E4M3Code(float p) {
  const std::uint32_t exponent = BitsOfFloat(p) & kInfinityBits;
  constexpr std::uint32_t kSmallestNormal = 121U << 23;
  const float power = FloatOfBits(exponent > kSmallestNormal ? exponent : kSmallestNormal);
  const std::uint32_t t = BitsOfFloat(FusedMultiplyAdd(power, 1048576.0F + 19.0F, p));
  return t + (t >> 20);
}

// The same, by the device's cast where there is one; for 0 <= p < 464. Nothing above the low 7 bits.
LAYERCAST_HOST_DEVICE inline std::uint32_t CodeOfE4M3(float p) {
  return kCastsToE4M3 ? CastToE4M3(p, 0.0F) : E4M3Code(p) & 0x7f;
}

// fp32 to e2m1, for 0 <= p <= 6, in the same way: t = E * (2^22 + 3) + p. The low 3 bits are the code.
LAYERCAST_HOST_DEVICE inline std::uint32_t E2M1Code(float p) {
  const std::uint32_t exponent = BitsOfFloat(p) & kInfinityBits;
  constexpr std::uint32_t kSmallestNormal = 127U << 23;
  const float power = FloatOfBits(exponent > kSmallestNormal ? exponent : kSmallestNormal);
  const std::uint32_t t = BitsOfFloat(FusedMultiplyAdd(power, 4194304.0F + 3.0F, p));
  return t + (t >> 22);
}

// The same for p >= 0: what is above 6 becomes 6.
LAYERCAST_HOST_DEVICE inline std::uint32_t SaturatedE2M1Code(float p) { return E2M1Code(p < kFp4Max ? p : kFp4Max); }

// The value of an e4m3fn code below 0x7f: moved to fp32's place it is the value times 2^-120, subnormals too.
LAYERCAST_HOST_DEVICE inline float E4M3Value(std::uint32_t code) {
  return FloatOfBits(code << 20) * FloatOfBits((127U + 120U) << 23);
}

// The value of an e2m1 code below 8, in the same way: 2^-126 times it.
LAYERCAST_HOST_DEVICE inline float E2M1Value(std::uint32_t code) {
  return FloatOfBits(code << 22) * FloatOfBits((127U + 126U) << 23);
}

// x / s rounded once, from r = 1 / s: the remainder of the quotient x * r corrects it, with its sign turned around,
// which keeps that of -0. Where the remainder would underflow the quotient may be off: only where it is far below what
// any recipe can tell from 0.
LAYERCAST_HOST_DEVICE inline float Quotient(float x, float s, float r) {
  const float quotient = x * r;
  return FusedMultiplyAdd(FusedMultiplyAdd(quotient, s, -x), -r, quotient);
}

// x / 6 rounded once, for x >= 0. Remainders that underflow are of smaller x: those are divided.
LAYERCAST_HOST_DEVICE inline float SixthOf(float x) {
  constexpr float kSmallest = 2.36e-38F;
  return x < kSmallest ? x / 6.0F : Quotient(x, 6.0F, 1.0F / 6.0F);
}

// rint(q) for |q| <= 127 in the low byte, two's complement, ties to even: the sum has no bits behind the point.
LAYERCAST_HOST_DEVICE inline std::uint32_t Int8Code(float q) { return BitsOfFloat(q + 12582912.0F); }

// The low bytes of four words.
LAYERCAST_HOST_DEVICE inline std::uint32_t LowBytes(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                                    std::uint32_t d) {
  return PickBytes(PickBytes(a, b, 0x0040), PickBytes(c, d, 0x0040), 0x5410);
}

}  // namespace layercast::cuda
