#include "src/session/signing/chunk_hashes.h"

#include <algorithm>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/tensor/region_views.h"
#include "src/transport/channel/offer_views.h"

namespace layercast {
namespace {

Hash HashOfBlock(PackedBytes from, std::size_t most) {
  Hasher hasher;
  for (std::span<const std::byte> run = from.Run(); !run.empty() && most > 0; run = from.Run()) {
    const std::span<const std::byte> taken = run.first(std::min(run.size(), most));
    hasher.Update(taken);
    from.Skip(taken.size());
    most -= taken.size();
  }
  return hasher.Finish();
}

// Copies of what the views show of a device, with what lies between their rows: that is one call for a view.
std::vector<RegionView> OnHost(const Device& device, std::vector<RegionView> views, DeviceBytes& bytes,
                               std::vector<std::vector<std::byte>>& copies) {
  for (RegionView& view : views) {
    if (view.num_bytes() == 0) continue;
    std::vector<std::byte>& copy = copies.emplace_back((view.rows - 1) * view.stride + view.row_bytes);
    bytes.ToHost(device, view.base, copy.size(), copy.data());
    view.base = copy.data();
  }
  return views;
}

}  // namespace

Hash HashOfViews(std::span<const RegionView> views, WorkerPool* pool) {
  const std::size_t bytes = NumBytes(views);
  if (bytes <= kHashBlockBytes) return HashOfBlock(PackedBytes(views, 0), bytes);
  std::vector<Hash> blocks((bytes + kHashBlockBytes - 1) / kHashBlockBytes);
  const auto hash_block = [&](std::size_t i) {
    blocks[i] = HashOfBlock(PackedBytes(views, i * kHashBlockBytes), kHashBlockBytes);
  };
  if (pool != nullptr) {
    pool->For(blocks.size(), hash_block);
  } else {
    for (std::size_t i = 0; i < blocks.size(); ++i) hash_block(i);
  }
  return HashOf(std::as_bytes(std::span(blocks)));
}

std::vector<Hash> HashChunks(const Schedule& schedule, const Offer& offer, std::size_t first, std::size_t count,
                             WorkerPool& pool, DeviceBytes* device) {
  std::vector<Hash> hashes(count);
  const auto views_of = [&](std::size_t i) {
    return ViewsOf(offer.tensors, schedule.RegionsOf(schedule.chunks()[first + i]));
  };
  if (offer.device.kind == Device::Kind::kHost) {
    pool.For(count, [&](std::size_t i) { hashes[i] = HashOfViews(views_of(i), nullptr); });
    return hashes;
  }
  LAYERCAST_CHECK(device != nullptr);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::vector<std::byte>> copies;
    hashes[i] = HashOfViews(OnHost(offer.device, views_of(i), *device, copies), &pool);
  }
  return hashes;
}

void CheckChunkHash(const Hash& expected, const Hash& got, const std::function<std::string()>& name) {
  if (expected == got) return;
  throw Error(ErrorCode::kCorrupt,
              name() + ": SHA-256 that its publisher has signed expected " + ToHex(expected) + ", got " + ToHex(got));
}

}  // namespace layercast
