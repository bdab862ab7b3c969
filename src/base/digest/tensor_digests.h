// Digests of tensors, wherever these lie: computed by the host at once, or by a device (src/device/device_digests.h).
#pragma once

#include <cstddef>
#include <span>

#include "layercast/version.h"

namespace layercast {

// Resource; one thread only. Digests that were not finished are given up with it.
class TensorDigests {
 public:
  virtual ~TensorDigests() = default;
  // Adds tensors, each of contiguous bytes. Their digests are set by Finish or before, and until then the bytes must
  // not change.
  virtual void Add(std::span<const std::span<const std::byte>> tensors, std::span<Digest> digests) = 0;
  virtual void Finish() = 0;
};

}  // namespace layercast
