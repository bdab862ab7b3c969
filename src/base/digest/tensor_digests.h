// Digests of tensors, wherever these lie: computed by the host at once, or by a device (src/device/device_digests.h).
#pragma once

#include <cstddef>

#include "layercast/version.h"

namespace layercast {

// Resource; one thread only, but threads may call Add at once for tensors in host memory. Digests that were not
// finished are given up with it.
class TensorDigests {
 public:
  virtual ~TensorDigests() = default;
  // Adds a tensor of contiguous bytes. `digest` is set by Finish or before, and until then the bytes must not change.
  virtual void Add(const std::byte* from, std::size_t bytes, Digest& digest) = 0;
  virtual void Finish() = 0;
};

}  // namespace layercast
