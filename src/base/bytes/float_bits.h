// The bits of an fp32, on a CUDA device too. Used by kernels, the CPU's and CUDA's, and by what is tested against them.
#pragma once

#include <cstdint>
#include <cstring>

#include "src/base/digest/host_device.h"

namespace layercast {

LAYERCAST_HOST_DEVICE inline std::uint32_t BitsOfFloat(float value) {
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

LAYERCAST_HOST_DEVICE inline float FloatOfBits(std::uint32_t bits) {
  float value = 0.0F;
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline constexpr std::uint32_t kInfinityBits = 0x7f800000U;

LAYERCAST_HOST_DEVICE inline bool IsFinite(float value) {
  return (BitsOfFloat(value) & kInfinityBits) != kInfinityBits;
}

}  // namespace layercast
