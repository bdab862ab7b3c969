// Turns a unit of weights into eight FP8 codes. Used by every FP8 body.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda/bodies/device_codes.cuh"
#include "src/device/kernels/elements.cuh"

namespace layercast::cuda {

// Four of a unit's codes, made by the device's cast.
template <class Type, class Quotient>
LAYERCAST_HOST_DEVICE std::uint32_t CastHalfToE4M3(const Unit<Type>& unit, int half, const Quotient& quotient) {
  float quotients[4];
  LAYERCAST_UNROLL
  for (int i = 0; i < 4; ++i) quotients[i] = quotient(ValueOf(unit, 4 * half + i));
  return CastToE4M3(quotients[0], quotients[1]) | CastToE4M3(quotients[2], quotients[3]) << 16;
}

// The codes of CastHalfToE4M3, made by E4M3Code from magnitudes and signs.
template <class Type, class Quotient>
LAYERCAST_HOST_DEVICE std::uint32_t EncodeHalfE4M3(const Unit<Type>& unit, int half, const Quotient& quotient) {
  std::uint32_t code[4];
  LAYERCAST_UNROLL
  for (int i = 0; i < 4; ++i) code[i] = E4M3Code(quotient(MagnitudeOf(unit, 4 * half + i)));
  constexpr std::uint32_t kSigns = 0x80808080U;
  return (LowBytes(code[0], code[1], code[2], code[3]) & ~kSigns) | (Type::HighBytes(unit.words, half) & kSigns);
}

// The codes of quotient(w), whose magnitude must be below 464.
template <class Type, class Quotient>
LAYERCAST_HOST_DEVICE void EncodeE4M3(const Unit<Type>& unit, const Quotient& quotient, std::uint32_t (&codes)[2]) {
  LAYERCAST_UNROLL
  for (int half = 0; half < 2; ++half) {
    if constexpr (kCastsToE4M3) {
      codes[half] = CastHalfToE4M3(unit, half, quotient);
    } else {
      codes[half] = EncodeHalfE4M3(unit, half, quotient);
    }
  }
}

// The two quotients, w * (1/s) and w / s, of any sign. They decide ties differently.
struct ByReciprocal {
  float reciprocal;
  LAYERCAST_HOST_DEVICE float operator()(float w) const { return w * reciprocal; }
};

struct ByDivision {
  float scale, reciprocal;
  LAYERCAST_HOST_DEVICE float operator()(float w) const { return Quotient(w, scale, reciprocal); }
};

}  // namespace layercast::cuda
