#include "src/transport/shm/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <set>
#include <string>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/exhausted.h"
#include "src/base/rounding.h"

namespace layercast::shm_channel {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLargestStep = std::size_t{16} << 30;

std::size_t Footprint(std::size_t bytes) { return RoundUp(std::max<std::size_t>(bytes, 1), kMemoryAlignment); }

// Faults in the segment up to `end`. Doing it in one go takes half the time of touching page by page, and tells if
// there is no memory. Where the kernel cannot, pages are faulted in when they are first touched. False: there is none.
bool FaultIn(Segment& segment, std::size_t end) {
  if (end <= segment.faulted_in) return true;
  const std::size_t to = std::min(RoundUp(end, kPage), segment.file.memory.size());
#ifdef MADV_POPULATE_WRITE
  std::byte* const begin = segment.file.memory.base() + segment.faulted_in;
  if (::madvise(begin, to - segment.faulted_in, MADV_POPULATE_WRITE) != 0 && (errno == ENOMEM || errno == EFAULT)) {
    return false;
  }
#endif
  segment.faulted_in = to;
  return true;
}

}  // namespace

Segment::Segment(std::size_t size) : file(MakeMemfd("layercast-arena", size)), free(size) {
  ::madvise(file.memory.base(), size, MADV_HUGEPAGE);  // where the host allows it for shared memory
}

std::byte* Arena::Allocate(std::size_t bytes) {
  if (bytes > std::size_t{1} << 46) {
    throw OutOfMemory("shm: shared memory", bytes);
  }
  const std::size_t wanted = Footprint(bytes);
  const std::lock_guard lock(mutex_);
  Segment* segment = BestFit(wanted);
  if (segment == nullptr) segment = &AddSegment(wanted);
  const FreeRanges::Range range = *segment->free.BestFit(wanted);
  segment->free.Take(range, wanted);
  if (!FaultIn(*segment, range.offset + wanted)) {
    segment->free.GiveBack(range.offset, wanted);
    throw OutOfMemory("shm: shared memory", bytes);
  }
  return segment->file.memory.base() + range.offset;
}

void Arena::Deallocate(std::byte* address, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Segment* segment = SegmentOf(address);
  if (segment == nullptr) return;
  segment->free.GiveBack(static_cast<std::size_t>(address - segment->file.memory.base()), Footprint(bytes));
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

std::vector<std::shared_ptr<const void>> Arena::MappingsOf(std::span<const OfferedTensor> tensors) const {
  std::set<std::shared_ptr<const Segment>> found;
  const std::lock_guard lock(mutex_);
  for (const OfferedTensor& tensor : tensors) {
    const Segment* const segment = SegmentOf(tensor.data);
    if (segment != nullptr) found.insert(segments_.at(segment->file.memory.base()));
  }
  return {found.begin(), found.end()};
}

std::size_t Arena::segments() const {
  const std::lock_guard lock(mutex_);
  return segments_.size();
}

Segment* Arena::BestFit(std::size_t bytes) const {
  Segment* best = nullptr;
  std::size_t best_size = 0;
  for (const auto& [base, segment] : segments_) {
    const std::optional<FreeRanges::Range> range = segment->free.BestFit(bytes);
    if (!range || (best != nullptr && range->bytes >= best_size)) continue;
    best = segment.get();
    best_size = range->bytes;
  }
  return best;
}

Segment& Arena::AddSegment(std::size_t bytes) {
  // Drops segments that are wholly free, and too small for this: sizes have changed, and they would only pile up.
  std::erase_if(segments_, [](const auto& entry) { return entry.second->free.all(); });
  std::size_t total = 0;
  for (const auto& [base, segment] : segments_) total += segment->file.memory.size();
  const std::size_t step = std::clamp(total, smallest_segment_, kLargestStep);
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
