// How bytes are cut into the leaves of their digest (digest.h). C++17, for CUDA compilers too.
#pragma once

#include <cstddef>

#include "src/base/digest/host_device.h"

namespace layercast {

inline constexpr std::size_t kLeafBytes = 8192;

// How many leaves so many bytes have. The last may be shorter. There is at least one: no bytes are an empty leaf.
LAYERCAST_HOST_DEVICE constexpr std::size_t NumLeaves(std::size_t bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / kLeafBytes + 1;
}

}  // namespace layercast
