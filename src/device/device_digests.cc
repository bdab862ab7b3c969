#include "src/device/device_digests.h"

#include <algorithm>
#include <cstring>

#include "src/base/digest/digest.h"
#include "src/tensor/region_views.h"

namespace layercast {
namespace {

// Bytes that are digested at once: whole leaves, and whole elements of any type. Four threads compute a leaf, so with
// few leaves multiprocessors would be idle.
constexpr std::size_t kPartBytes = std::size_t{1} << 30;
constexpr std::size_t kPackedBytes = std::size_t{4} << 20;

}  // namespace

void DeviceDigests::Add(std::span<const std::span<const std::byte>> tensors, std::span<Digest> digests) {
  for (std::size_t i = 0; i < tensors.size(); ++i) Add(tensors[i].data(), tensors[i].size(), digests[i]);
}

void DeviceDigests::Add(const std::byte* from, std::size_t bytes, Digest& digest) {
  std::size_t done = 0;
  do {
    const std::size_t count = std::min(kPartBytes, bytes - done);
    AddPart(from + done, count, bytes, digest);
    done += count;
  } while (done < bytes);
}

void DeviceDigests::Add(std::span<const RegionView> views, Digest& digest) {
  if (views.size() == 1 && (views.front().rows <= 1 || views.front().stride == views.front().row_bytes)) {
    return Add(views.front().base, views.front().num_bytes(), digest);
  }
  const std::size_t bytes = NumBytes(views);
  if (packed_.size() < bytes) packed_ = Buffer(memory_, std::max(bytes, kPackedBytes));
  std::byte* to = packed_.data();
  for (const RegionView& view : views) {
    stream_.Pack(view, to);
    to += view.num_bytes();
  }
  Add(packed_.data(), bytes, digest);
}

void DeviceDigests::Add(const GatheredBytes& from, Digest& digest) {
  if (!packed_) packed_ = Buffer(memory_, kPackedBytes);
  std::size_t done = 0;
  do {
    const std::size_t count = std::min(kPackedBytes - kPackedBytes % from.unit, from.bytes - done);
    if (count != 0) from.gather(done, count, packed_.data());
    AddPart(packed_.data(), count, from.bytes, digest);
    done += count;
  } while (done < from.bytes);
}

// Leaves arrive tensor by tensor, those of each in one or several visits.
void DeviceDigests::AddPart(const std::byte* from, std::size_t bytes, std::size_t tensor_bytes, Digest& digest) {
  if (!leaves_) leaves_ = Buffer(memory_, NumLeaves(kPartBytes) * sizeof(Digest));
  stream_.LeafDigests(from, bytes, reinterpret_cast<Digest*>(leaves_.data()));
  const auto take = [this, &digest, total = NumLeaves(tensor_bytes)](std::span<const std::byte> part) {
    arrived_.resize(total);
    std::memcpy(reinterpret_cast<std::byte*>(arrived_.data()) + arrived_bytes_, part.data(), part.size());
    arrived_bytes_ += part.size();
    if (arrived_bytes_ != total * sizeof(Digest)) return;
    digest = DigestOfLeaves(arrived_);
    arrived_bytes_ = 0;
  };
  download_.Read(leaves_.data(), NumLeaves(bytes) * sizeof(Digest), take);
}

}  // namespace layercast
