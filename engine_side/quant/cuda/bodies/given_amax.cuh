// The largest magnitude that a recipe's scales are made from, if its caller gives one. Used by the bodies.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda_kernels.h"
#include "src/base/bytes/float_bits.h"
#include "src/base/digest/host_device.h"

namespace layercast::cuda {

LAYERCAST_HOST_DEVICE inline float AmaxValue(const CudaTensorAmax& amax) {
  return amax.device == nullptr ? amax.value : *amax.device;
}

// The bits that the magnitudes of a type may have at most if scales are made from `amax`, which must not be negative.
template <class Type>
LAYERCAST_HOST_DEVICE std::uint32_t LimitOf(float amax) {
  const std::uint32_t bits = BitsOfFloat(amax);
  return bits < Type::kInfinity ? bits : Type::kInfinity - 1;
}

}  // namespace layercast::cuda
