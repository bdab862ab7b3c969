// The largest magnitude that a recipe's scales are made from, where its caller gives one.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda_kernels.h"
#include "src/base/float_bits.h"
#include "src/base/host_device.h"

namespace layercast::cuda {

LAYERCAST_HOST_DEVICE inline float AmaxValue(const CudaTensorAmax& amax) {
  return amax.device == nullptr ? amax.value : *amax.device;
}

// What magnitudes of a type may be, at most, where scales are made from `amax`, which is not negative.
template <class Type>
LAYERCAST_HOST_DEVICE std::uint32_t LimitOf(float amax) {
  const std::uint32_t bits = BitsOfFloat(amax);
  return bits < Type::kInfinity ? bits : Type::kInfinity - 1;
}

}  // namespace layercast::cuda
