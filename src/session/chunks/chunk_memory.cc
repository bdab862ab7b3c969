#include "src/session/chunks/chunk_memory.h"

#include "src/tensor/region_views.h"

namespace layercast {

// It changes a copy, because the views may be of a publisher's own memory.
std::vector<RegionView> HostChunkMemory::Corrupted(std::span<const RegionView> views) {
  corrupted_.resize(NumBytes(views));
  std::vector<RegionView> copies = PackAll(views, corrupted_.data());
  if (!corrupted_.empty()) corrupted_[corrupted_.size() / 2] ^= std::byte{1};
  return copies;
}

}  // namespace layercast
