// Which elements of a strided tensor are meant, and in which order: a box of a parameter, a captured buffer. The form
// in which kernels take it. C++17, for CUDA compilers.
#pragma once

#include <cstdint>

#include "src/base/host_device.h"

namespace layercast {

// Row-major order of `extent`, `stride` elements apart, from element `offset` of the tensor on. Plain value.
struct ElementWalk {
  static constexpr int kMaxRank = 4;

  int rank = 0;  // 0: one element
  std::int64_t extent[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};
  std::int64_t offset = 0;

  // Where element number `index` of the walk lies in the tensor.
  LAYERCAST_HOST_DEVICE std::int64_t At(std::int64_t index) const {
    std::int64_t at = offset;
    for (int d = rank; d-- > 0;) {
      at += index % extent[d] * stride[d];
      index /= extent[d];
    }
    return at;
  }
};

}  // namespace layercast
