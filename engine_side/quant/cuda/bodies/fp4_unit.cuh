// Turns a unit of weights into eight e2m1 codes, two in a byte. Used by every recipe of four bits.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda/bodies/device_codes.cuh"
#include "src/device/kernels/elements.cuh"

namespace layercast::cuda {

// The codes of four elements, two each in bytes 0 and 2.
template <bool kSaturates, class Type>
LAYERCAST_HOST_DEVICE std::uint32_t EncodeHalfE2M1(const Unit<Type>& unit, int half, float factor) {
  std::uint32_t code[4];
  LAYERCAST_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float magnitude = MagnitudeOf(unit, 4 * half + i) * factor;
    code[i] = kSaturates ? SaturatedE2M1Code(magnitude) : E2M1Code(magnitude);
  }
  const std::uint32_t magnitudes = LowBytes(code[0], code[1], code[2], code[3]) & 0x07070707U;
  const std::uint32_t signs = Type::HighBytes(unit.words, half) >> 4 & 0x08080808U;
  const std::uint32_t codes = magnitudes | signs;
  return codes | codes >> 4;
}

// The codes of w * factor, whose magnitude may be above 6 only if kSaturates.
template <bool kSaturates, class Type>
LAYERCAST_HOST_DEVICE void EncodeE2M1(const Unit<Type>& unit, float factor, std::uint32_t (&codes)[1]) {
  codes[0] =
      PickBytes(EncodeHalfE2M1<kSaturates>(unit, 0, factor), EncodeHalfE2M1<kSaturates>(unit, 1, factor), 0x6420);
}

}  // namespace layercast::cuda
