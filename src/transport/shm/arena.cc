#include "src/transport/shm/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/rounding.h"

namespace layercast::shm_channel {
namespace {

constexpr std::size_t kPage = 4096;
// Segments are sparse until they are used, so a large one costs nothing; few of them keep attaching short.
constexpr std::size_t kSmallestSegment = std::size_t{256} << 20;
constexpr std::size_t kLargestStep = std::size_t{16} << 30;

std::size_t Footprint(std::size_t bytes) { return RoundUp(std::max<std::size_t>(bytes, 1), kMemoryAlignment); }

// Faulting in one go takes half the time of touching page by page. A kernel that cannot leaves it to the first touch.
void FaultIn(Segment& segment, std::size_t end) {
  if (end <= segment.faulted_in) return;
  const std::size_t to = std::min(RoundUp(end, kPage), segment.file.memory.size());
#ifdef MADV_POPULATE_WRITE
  ::madvise(segment.file.memory.base() + segment.faulted_in, to - segment.faulted_in, MADV_POPULATE_WRITE);
#endif
  segment.faulted_in = to;
}

}  // namespace

Segment::Segment(std::size_t size) : file(MakeMemfd("layercast-arena", size)), free{{0, size}} {
  ::madvise(file.memory.base(), size, MADV_HUGEPAGE);  // where the host allows it for shared memory
}

std::byte* Arena::Allocate(std::size_t bytes) {
  if (bytes > std::size_t{1} << 46) {
    throw Error(ErrorCode::kResourceExhausted, "shm: cannot allocate " + std::to_string(bytes) + " bytes");
  }
  const std::size_t wanted = Footprint(bytes);
  const std::lock_guard lock(mutex_);
  std::size_t offset = 0;
  Segment* segment = BestFit(wanted, offset);
  if (segment == nullptr) segment = &AddSegment(wanted);
  const auto range = segment->free.find(offset);
  const std::size_t rest = range->second - wanted;
  segment->free.erase(range);
  if (rest != 0) segment->free.emplace(offset + wanted, rest);
  FaultIn(*segment, offset + wanted);
  return segment->file.memory.base() + offset;
}

void Arena::Deallocate(std::byte* address, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Segment* segment = SegmentOf(address);
  if (segment == nullptr) return;
  auto [range, added] = segment->free.emplace(address - segment->file.memory.base(), Footprint(bytes));
  if (const auto next = std::next(range); next != segment->free.end() && range->first + range->second == next->first) {
    range->second += next->second;
    segment->free.erase(next);
  }
  if (range == segment->free.begin()) return;
  if (const auto before = std::prev(range); before->first + before->second == range->first) {
    before->second += range->second;
    segment->free.erase(range);
  }
}

Location Arena::Locate(const std::byte* address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const Segment* segment = SegmentOf(address);
  const auto offset = segment == nullptr ? 0 : static_cast<std::size_t>(address - segment->file.memory.base());
  if (segment == nullptr || bytes > segment->file.memory.size() - offset) {
    throw Error(ErrorCode::kInvalidArgument, std::to_string(bytes) + " bytes that do not lie in the arena");
  }
  return {segments_.at(segment->file.memory.base()), offset};
}

std::size_t Arena::segments() const {
  const std::lock_guard lock(mutex_);
  return segments_.size();
}

Segment* Arena::BestFit(std::size_t bytes, std::size_t& offset) const {
  Segment* best = nullptr;
  std::size_t best_size = 0;
  for (const auto& [base, segment] : segments_) {
    for (const auto& [at, size] : segment->free) {
      if (size < bytes || (best != nullptr && size >= best_size)) continue;
      best = segment.get();
      best_size = size;
      offset = at;
    }
  }
  return best;
}

Segment& Arena::AddSegment(std::size_t bytes) {
  // Wholly free segments that are too small for this: sizes have changed, and they would only pile up.
  std::erase_if(segments_, [](const auto& entry) {
    const Segment& segment = *entry.second;
    return segment.free.size() == 1 && segment.free.begin()->second == segment.file.memory.size();
  });
  std::size_t total = 0;
  for (const auto& [base, segment] : segments_) total += segment->file.memory.size();
  const std::size_t step = std::clamp(total, kSmallestSegment, kLargestStep);
  auto segment = std::make_shared<Segment>(std::max(RoundUp(bytes, kPage), step));
  Segment& added = *segment;
  segments_.emplace(added.file.memory.base(), std::move(segment));
  return added;
}

Segment* Arena::SegmentOf(const std::byte* address) const {
  auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return nullptr;
  Segment* segment = std::prev(after)->second.get();
  const auto offset = static_cast<std::size_t>(address - segment->file.memory.base());
  return offset < segment->file.memory.size() ? segment : nullptr;
}

}  // namespace layercast::shm_channel
