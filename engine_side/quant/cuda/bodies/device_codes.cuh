// The codes of magnitudes, made by integer and fp32 operations that give the same result on every processor.
// engine_side/quant/codes.h has the definitions. Used by the bodies.
#pragma once

#include <cstdint>

#include "engine_side/quant/scales.h"
#include "src/device/kernels/words.cuh"

namespace layercast::cuda {

// fp32 to e4m3fn, for 0 <= p < 480. With E = 2^max(exponent of p, -6), t = E * (2^20 + 19) + p has a unit in the last
// place of 2^(exponent - 3), which is that of the code's mantissa. So the rounding of this sum is the rounding of the
// cast. 19 is even, which keeps ties even, and it takes away the exponent's bias. The low 7 bits of the result are the
// code; the bits above are garbage.
LAYERCAST_HOST_DEVICE inline std::uint32_t E4M3Code(float p) {
  const std::uint32_t exponent = BitsOfFloat(p) & kInfinityBits;
  constexpr std::uint32_t kSmallestNormal = 121U << 23;
  const float power = FloatOfBits(exponent > kSmallestNormal ? exponent : kSmallestNormal);
  const std::uint32_t t = BitsOfFloat(FusedMultiplyAdd(power, 1048576.0F + 19.0F, p));
  return t + (t >> 20);
}

// fp32 to e4m3fn, for 0 <= p < 464, by the device's cast if it has one. There are no bits above the low 7.
LAYERCAST_HOST_DEVICE inline std::uint32_t CodeOfE4M3(float p) {
  return kCastsToE4M3 ? CastToE4M3(p, 0.0F) : E4M3Code(p) & 0x7f;
}

// fp32 to e2m1, for 0 <= p <= 6, as E4M3Code does it, with t = E * (2^22 + 3) + p. The low 3 bits are the code; the
// bits above are garbage.
LAYERCAST_HOST_DEVICE inline std::uint32_t E2M1Code(float p) {
  const std::uint32_t exponent = BitsOfFloat(p) & kInfinityBits;
  constexpr std::uint32_t kSmallestNormal = 127U << 23;
  const float power = FloatOfBits(exponent > kSmallestNormal ? exponent : kSmallestNormal);
  const std::uint32_t t = BitsOfFloat(FusedMultiplyAdd(power, 4194304.0F + 3.0F, p));
  return t + (t >> 22);
}

// fp32 to e2m1, for any p >= 0: what is above 6 becomes 6. The low 3 bits are the code; the bits above are garbage.
LAYERCAST_HOST_DEVICE inline std::uint32_t SaturatedE2M1Code(float p) { return E2M1Code(p < kFp4Max ? p : kFp4Max); }

// The value of an e4m3fn code below 0x7f. Moved to where fp32 has these bits, the code is the value times 2^-120, also
// for subnormals.
LAYERCAST_HOST_DEVICE inline float E4M3Value(std::uint32_t code) {
  return FloatOfBits(code << 20) * FloatOfBits((127U + 120U) << 23);
}

// The value of an e2m1 code below 8. Moved to where fp32 has these bits, the code is the value times 2^-126.
LAYERCAST_HOST_DEVICE inline float E2M1Value(std::uint32_t code) {
  return FloatOfBits(code << 22) * FloatOfBits((127U + 126U) << 23);
}

// x / s rounded once, from r = 1 / s. The remainder of the quotient x * r corrects it. The remainder is taken with its
// sign reversed, which keeps the sign of -0. If it would underflow, the quotient may be off, but then it is far below
// what any recipe can tell from 0.
LAYERCAST_HOST_DEVICE inline float Quotient(float x, float s, float r) {
  const float quotient = x * r;
  return FusedMultiplyAdd(FusedMultiplyAdd(quotient, s, -x), -r, quotient);
}

// x / 6 rounded once, for x >= 0. Below kSmallest the remainder would underflow, so x is divided.
LAYERCAST_HOST_DEVICE inline float SixthOf(float x) {
  constexpr float kSmallest = 2.36e-38F;
  return x < kSmallest ? x / 6.0F : Quotient(x, 6.0F, 1.0F / 6.0F);
}

// rint(q) for |q| <= 127, ties to even, in the low byte as two's complement: the sum has no bits behind the point.
LAYERCAST_HOST_DEVICE inline std::uint32_t Int8Code(float q) { return BitsOfFloat(q + 12582912.0F); }

// The low bytes of four words.
LAYERCAST_HOST_DEVICE inline std::uint32_t LowBytes(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                                    std::uint32_t d) {
  return PickBytes(PickBytes(a, b, 0x0040), PickBytes(c, d, 0x0040), 0x5410);
}

}  // namespace layercast::cuda
