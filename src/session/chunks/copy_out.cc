#include "src/session/chunks/copy_out.h"

#include "src/tensor/region_views.h"

namespace layercast {
namespace {

// The bytes that a thread copies before it takes the next share. Copying them takes about as long as waking a thread,
// or several times that. A thread that wakes late finds less to do.
constexpr std::size_t kShareBytes = std::size_t{512} << 10;

}  // namespace

std::vector<RegionView> CopyOut(std::span<const RegionView> views, std::byte* destination, WorkerPool* pool) {
  if (pool == nullptr || pool->threads() < 2 || NumBytes(views) <= kShareBytes) return PackAll(views, destination);
  const std::vector<ViewShare> shares = SharesOf(views, kShareBytes);
  pool->For(shares.size(), [&](std::size_t i) { PackAll(shares[i].views, destination + shares[i].begin); });
  std::vector<RegionView> copies;
  copies.reserve(views.size());
  for (const RegionView& view : views) {
    copies.push_back(PackedAt(destination, view.row_bytes, view.rows));
    destination += view.num_bytes();
  }
  return copies;
}

}  // namespace layercast
