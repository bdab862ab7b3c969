#include "src/session/link/copy_out.h"

#include <algorithm>
#include <utility>

#include "src/tensor/region_views.h"

namespace layercast {
namespace {

// The bytes that a thread copies before it takes the next share. Copying them takes about as long as waking a thread,
// or several times that. A thread that wakes late finds less to do.
constexpr std::size_t kShareBytes = std::size_t{512} << 10;

// What one thread copies at a time.
struct CopyShare {
  std::vector<RegionView> views;
  std::byte* to;
};

// Splits a view into its first `bytes`, or somewhat fewer, and the rest. Rows that lie apart are not cut.
std::pair<RegionView, RegionView> SplitAt(const RegionView& view, std::size_t bytes) {
  const std::size_t all = view.num_bytes();
  if (view.rows == 1 || view.stride == view.row_bytes) {
    const std::size_t first = std::min(bytes, all);
    return {AsView({view.base, first}), AsView({view.base + first, all - first})};
  }
  RegionView first = view;
  RegionView rest = view;
  first.rows = std::clamp<std::size_t>(bytes / view.row_bytes, 1, view.rows);
  rest.base = view.row(first.rows);
  rest.rows = view.rows - first.rows;
  return {first, rest};
}

std::vector<CopyShare> Split(std::span<const RegionView> views, std::byte* destination) {
  std::vector<CopyShare> shares;
  std::size_t room = 0;  // bytes that still fit the last share
  for (RegionView rest : views) {
    while (rest.num_bytes() != 0) {
      if (room == 0) {
        shares.push_back({{}, destination});
        room = kShareBytes;
      }
      const auto [first, behind] = SplitAt(rest, room);
      shares.back().views.push_back(first);
      destination += first.num_bytes();
      room -= std::min(room, first.num_bytes());
      rest = behind;
    }
  }
  return shares;
}

}  // namespace

std::vector<RegionView> CopyOut(std::span<const RegionView> views, std::byte* destination, WorkerPool* pool) {
  if (pool == nullptr || pool->threads() < 2 || NumBytes(views) <= kShareBytes) return PackAll(views, destination);
  const std::vector<CopyShare> shares = Split(views, destination);
  pool->For(shares.size(), [&](std::size_t i) { PackAll(shares[i].views, shares[i].to); });
  std::vector<RegionView> copies;
  copies.reserve(views.size());
  for (const RegionView& view : views) {
    copies.push_back(PackedAt(destination, view.row_bytes, view.rows));
    destination += view.num_bytes();
  }
  return copies;
}

}  // namespace layercast
