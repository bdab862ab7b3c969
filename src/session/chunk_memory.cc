#include "src/session/chunk_memory.h"

namespace layercast {

// A copy: the views may be of a publisher's own memory.
std::vector<RegionView> HostChunkMemory::Corrupted(std::span<const RegionView> views) {
  std::size_t bytes = 0;
  for (const RegionView& view : views) bytes += view.num_bytes();
  corrupted_.resize(bytes);
  std::vector<RegionView> copies;
  std::byte* at = corrupted_.data();
  for (const RegionView& view : views) {
    Pack(view, at);
    copies.push_back(PackedAt(at, view.row_bytes, view.rows));
    at += view.num_bytes();
  }
  if (!corrupted_.empty()) corrupted_[corrupted_.size() / 2] ^= std::byte{1};
  return copies;
}

}  // namespace layercast
