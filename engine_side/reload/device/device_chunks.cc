#include "engine_side/reload/device/device_chunks.h"

#include <algorithm>
#include <cstring>

#include "src/base/check.h"
#include "src/base/digest/digest.h"
#include "src/base/log.h"

namespace layercast {
namespace {

// The bytes of a chunk, whose regions a copying channel packs one behind the other.
std::size_t PackedBytes(std::span<const RegionView> views) {
  std::size_t bytes = 0;
  for (const RegionView& view : views) {
    LAYERCAST_CHECK(view.num_bytes() == 0 || view.base == views.front().base + bytes);
    LAYERCAST_CHECK(view.rows <= 1 || view.stride == view.row_bytes);
    bytes += view.num_bytes();
  }
  return bytes;
}

}  // namespace

std::byte* DeviceChunks::Slots::Allocate(std::size_t bytes) {
  std::byte* const address = memory_.Allocate(bytes);
  used_[address] = bytes;
  return address;
}

void DeviceChunks::Slots::Deallocate(std::byte* address, std::size_t bytes) noexcept {
  used_.erase(address);
  memory_.Deallocate(address, bytes);
}

bool DeviceChunks::Slots::Has(const std::byte* address) const {
  const auto slot = used_.lower_bound(address);  // the last slot that begins at or before the address
  return slot != used_.end() && address < slot->first + slot->second;
}

// Waits, because the device may still be writing digests that nobody has waited for.
DeviceChunks::~DeviceChunks() {
  try {
    for (const auto& leaves : leaves_) stream_.Wait(leaves->arrived);
  } catch (const std::exception& error) {
    log::error("waiting for digests of chunks: {}", error.what());
  }
}

PendingDigest DeviceChunks::BeginDigest(std::span<const RegionView> views) {
  const std::size_t bytes = PackedBytes(views);
  if (bytes == 0) return [] { return DigestOf({}); };
  const std::size_t count = NumLeaves(bytes);
  std::shared_ptr<Leaves> leaves = FreeLeaves(count * sizeof(Digest));
  stream_.LeafDigests(views.front().base, bytes, reinterpret_cast<Digest*>(leaves->device.data()));
  stream_.Copy(leaves->device.data(), leaves->pinned.data(), count * sizeof(Digest));
  leaves->arrived = stream_.Record();
  return [this, count, leaves = std::move(leaves)] {
    stream_.Wait(leaves->arrived);
    return DigestOfLeaves({reinterpret_cast<const Digest*>(leaves->pinned.data()), count});
  };
}

std::shared_ptr<DeviceChunks::Leaves> DeviceChunks::FreeLeaves(std::size_t bytes) {
  const auto free = std::ranges::find_if(leaves_, [](const auto& leaves) { return leaves.use_count() == 1; });
  if (free == leaves_.end()) {
    leaves_.push_back(
        std::make_shared<Leaves>(Leaves{Buffer(stream_.memory(), bytes), Buffer(stream_.pinned(), bytes)}));
    return leaves_.back();
  }
  Leaves& leaves = **free;
  stream_.Wait(leaves.arrived);
  if (leaves.pinned.size() < bytes) leaves = {Buffer(stream_.memory(), bytes), Buffer(stream_.pinned(), bytes)};
  return *free;
}

std::vector<RegionView> DeviceChunks::Corrupted(std::span<const RegionView> views) {
  const std::size_t bytes = PackedBytes(views);
  if (bytes != 0) {
    auto* const flipped = const_cast<std::byte*>(views.front().base) + bytes / 2;  // in a slot, so not const
    Buffer pinned(stream_.pinned(), 1);
    stream_.Copy(flipped, pinned.data(), 1);
    stream_.Wait(stream_.Record());
    pinned.span()[0] ^= std::byte{1};
    stream_.Copy(pinned.data(), flipped, 1);
    stream_.Wait(stream_.Record());
  }
  return {views.begin(), views.end()};
}

}  // namespace layercast
