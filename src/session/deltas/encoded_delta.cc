#include "src/session/deltas/encoded_delta.h"

#include <algorithm>
#include <cstring>

#include "src/base/memory/buffer_for.h"
#include "src/delta/delta_frame.h"
#include "src/tensor/region_views.h"
#include "src/transport/channel/offer_views.h"

namespace layercast {
namespace {

constexpr std::uint64_t kEncodedAtOnce = 64U << 20;  // bytes of the version between two looks at who waits

// The bytes of a chunk, one after the other: where they lie, or copied if they lie apart.
class PackedChunk {
 public:
  PackedChunk(const OfferedVersion& version, std::span<const Region> regions) {
    const std::vector<RegionView> views = ViewsOf(version.offer().tensors, regions);
    if (views.size() == 1 && views.front().rows == 1) {
      bytes_ = {views.front().base, views.front().row_bytes};
      return;
    }
    copy_.resize(NumBytes(views));
    PackAll(views, copy_.data());
    bytes_ = copy_;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> copy_;
  std::span<const std::byte> bytes_;
};

// What the codec takes for an element: as wide as those of the chunk's narrowest tensor, as far as the codec goes. Any
// width is lossless.
std::size_t ElementBytes(const Manifest& manifest, std::span<const Region> regions) {
  std::size_t narrowest = 4;
  for (const Region& region : regions) {
    const auto bits = static_cast<std::size_t>(BitsPerElement(manifest.entry(region.tensor).spec.dtype));
    narrowest = std::min(narrowest, std::max<std::size_t>(bits / 8, 1));
    while (region.row_bytes % narrowest != 0) narrowest /= 2;
  }
  return narrowest;
}

std::vector<std::byte> FrameOf(std::span<const Region> regions, const OfferedVersion& base,
                               const OfferedVersion& version) {
  const PackedChunk before(base, regions);
  const PackedChunk after(version, regions);
  const std::size_t element = ElementBytes(version.manifest(), regions);
  std::vector<std::byte> frame =
      EncodeDelta({.bytes = before.bytes()}, {.bytes = after.bytes()}, element, DeltaEffort::kSmall);
  if (frame.size() <= after.bytes().size() + kMostFrameHead) return frame;
  return EncodeDense({.bytes = after.bytes()}, element, DeltaEffort::kFast);  // a small chunk that is all new
}

}  // namespace

void EncodedDelta::EncodeNext(const OfferedVersion& base, const OfferedVersion& version, WorkerPool& pool) {
  const std::span<const Chunk> chunks = schedule_->chunks();
  const std::size_t first = frames_.size();
  std::size_t end = first;
  for (std::uint64_t bytes = 0; end < chunks.size() && bytes < kEncodedAtOnce; ++end) bytes += chunks[end].num_bytes;
  std::vector<std::vector<std::byte>> next(end - first);
  pool.For(next.size(),
           [&](std::size_t i) { next[i] = FrameOf(schedule_->RegionsOf(chunks[first + i]), base, version); });
  for (std::vector<std::byte>& frame : next) {
    chunk_bytes_.push_back(frame.size());
    bytes_ += frame.size();
    frames_.push_back(std::move(frame));
  }
}

void EncodedDelta::Offer(std::uint64_t id, MemoryResource& arena, std::span<OfferingEnd* const> ends) {
  memory_ = BufferFor("the deltas of a version", arena, static_cast<std::size_t>(bytes_));
  layercast::Offer offer{.id = id, .tensors = {}};
  std::byte* at = memory_.data();
  for (const std::vector<std::byte>& frame : frames_) {
    std::memcpy(at, frame.data(), frame.size());
    offer.tensors.push_back({at, frame.size()});
    at += frame.size();
  }
  frames_ = {};
  carried_.emplace(std::move(offer), ends);
}

std::optional<std::uint64_t> EncodedDelta::offer() const {
  return carried_ ? std::optional(carried_->id()) : std::nullopt;
}

}  // namespace layercast
