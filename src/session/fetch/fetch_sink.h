// What takes the tensors and chunks that a fetch session brings (fetch.h). Whoever stages a version implements it.
#pragma once

#include <cstdint>
#include <span>

#include "layercast/version.h"
#include "src/tensor/region.h"

namespace layercast {

// Takes what arrives. Its methods are called on the fetching thread.
class FetchSink {
 public:
  virtual ~FetchSink() = default;
  // For streams only (a snapshot's manifest has these): the tensor's largest magnitude and digest, before the first of
  // its chunks. Called for every tensor of the manifest, also if the schedule wants nothing of it.
  virtual void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) = 0;
  // Called for each tensor whose magnitudes amax_requests asked for, before the first of its chunks.
  virtual void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) = 0;
  // Chunk number `chunk` of the schedule: one view for each region, valid until the call returns. Its digest has been
  // checked.
  virtual void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) = 0;
};

}  // namespace layercast
