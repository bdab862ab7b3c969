#include "src/tensor/region_views.h"

namespace layercast {

std::size_t NumBytes(std::span<const RegionView> views) {
  std::size_t bytes = 0;
  for (const RegionView& view : views) bytes += view.num_bytes();
  return bytes;
}

std::vector<RegionView> PackAll(std::span<const RegionView> views, std::byte* destination) {
  std::vector<RegionView> copies;
  copies.reserve(views.size());
  for (const RegionView& view : views) {
    Pack(view, destination);
    copies.push_back(PackedAt(destination, view.row_bytes, view.rows));
    destination += view.num_bytes();
  }
  return copies;
}

}  // namespace layercast
