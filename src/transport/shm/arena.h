// The publisher's shared memory: a MemoryResource over a few large memfds. The next version uses freed ranges again.
// Part of ShmOfferingEnd, which has one for tensors and one for the tables of its offers.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "layercast/memory.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/free_ranges.h"
#include "src/transport/shm/memfd.h"

namespace layercast::shm_channel {

// One memfd and its free ranges. `file` is immutable; the rest is guarded by the arena's mutex.
struct Segment {
  explicit Segment(std::size_t size);

  Memfd file;
  FreeRanges free;
  std::size_t faulted_in = 0;  // bytes from the start that are
};

// Where a run of bytes lies. Value. Offers share `segment` with the arena: they keep it while they need its descriptor.
struct Location {
  std::shared_ptr<const Segment> segment;
  std::size_t offset = 0;
};

// Thread-safe.
class Arena final : public MemoryResource {
 public:
  // Segments are sparse until they are used, so a large one costs nothing, and the fewer there are, the faster
  // receivers attach.
  static constexpr std::size_t kSmallestSegment = std::size_t{256} << 20;
  explicit Arena(std::size_t smallest_segment = kSmallestSegment) : smallest_segment_(smallest_segment) {}

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;

  // Throws kInvalidArgument unless [address, address + bytes) lies in one segment.
  Location Locate(const std::byte* address, std::size_t bytes) const;
  // The segments of those tensors that lie here (OfferingEnd::MappingsOf).
  std::vector<std::shared_ptr<const void>> MappingsOf(std::span<const OfferedTensor> tensors) const;
  std::size_t segments() const;

 private:
  // The segment with the smallest free range into which `bytes` fit; null if there is none.
  Segment* BestFit(std::size_t bytes) const;
  Segment& AddSegment(std::size_t bytes);
  Segment* SegmentOf(const std::byte* address) const;

  const std::size_t smallest_segment_;
  mutable std::mutex mutex_;
  // By base; guarded by mutex_. The other owners are offers, and the receivers of this process that read in a segment.
  std::map<const std::byte*, std::shared_ptr<Segment>> segments_;
};

}  // namespace layercast::shm_channel
