// Which elements of a strided tensor are meant, and in which order: those of a box of a parameter, or of a captured
// buffer. This is the form in which kernels take it. Valid as C++17, for CUDA compilers.
#pragma once

#include <cstdint>

#include "src/base/digest/host_device.h"

namespace layercast {

// The elements of a box of `extent` in row-major order. In each dimension they are `stride` elements apart, and the
// first is element `offset` of the tensor. Plain value.
struct ElementWalk {
  static constexpr int kMaxRank = 4;

  int rank = 0;  // 0 means one element
  std::int64_t extent[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};
  std::int64_t offset = 0;

  // The element of the tensor that is number `index` of the walk, which must exist. Divides by all extents but the
  // first. It does so in 32 bits if these and the index fit, because a device takes several times as long in 64.
  LAYERCAST_HOST_DEVICE std::int64_t At(std::int64_t index) const {
    const std::int64_t bits = index | extent[1] | extent[2] | extent[3];
    return bits >> 32 == 0 ? AtBy<std::uint32_t>(index) : AtBy<std::uint64_t>(index);
  }

 private:
  template <class Number>
  LAYERCAST_HOST_DEVICE std::int64_t AtBy(std::int64_t index) const {
    if (rank == 0) return offset;
    std::int64_t at = offset;
    auto left = static_cast<Number>(index);
    for (int d = rank; d-- > 1;) {
      const auto of_dimension = static_cast<Number>(extent[d]);
      const Number before = left / of_dimension;
      at += static_cast<std::int64_t>(left - before * of_dimension) * stride[d];
      left = before;
    }
    return at + static_cast<std::int64_t>(left) * stride[0];
  }
};

}  // namespace layercast
