#include "src/transport/cuda_ipc/segments/cuda_ipc_arena.h"

#include <numeric>
#include <optional>

#include "src/base/rounding.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr std::size_t kBlockAlignment = 256;             // that of cudaMalloc
constexpr std::size_t kSmallest = std::size_t{2} << 20;  // the unit in which devices map memory

std::size_t RoundedUp(std::size_t bytes) { return RoundUp(bytes, kBlockAlignment); }

}  // namespace

Block::~Block() {
  if (segment_ != nullptr) arena_->GiveBack(*segment_, offset_, bytes_);
}

std::vector<Block> Arena::Allocate(std::span<const std::size_t> sizes) {
  std::vector<Block> blocks(sizes.size());  // outlives the lock, which giving blocks back takes
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    blocks[i] = TakeBestFit(RoundedUp(sizes[i]));
    if (blocks[i].segment() != nullptr) continue;
    AddSegment(std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(i), sizes.end(), std::size_t{0},
                               [](std::size_t sum, std::size_t size) { return sum + RoundedUp(size); }));
    blocks[i] = TakeBestFit(RoundedUp(sizes[i]));
  }
  return blocks;
}

std::size_t Arena::segments() const {
  const std::lock_guard lock(mutex_);
  return segments_.size();
}

void Arena::GiveBack(Segment& segment, std::size_t offset, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  segment.free.GiveBack(offset, bytes);
}

Block Arena::TakeBestFit(std::size_t bytes) {
  std::shared_ptr<Segment> best;
  FreeRanges::Range range;
  for (const std::shared_ptr<Segment>& segment : segments_) {
    const std::optional<FreeRanges::Range> fit = segment->free.BestFit(bytes);
    if (!fit || (best != nullptr && fit->bytes >= range.bytes)) continue;
    best = segment;
    range = *fit;
  }
  if (best == nullptr) return {};
  best->free.Take(range, bytes);
  return {*this, best, range.offset, bytes};
}

void Arena::AddSegment(std::size_t bytes) {
  std::erase_if(segments_, [](const std::shared_ptr<Segment>& segment) {
    return segment->memory->kept_by_mappings() && segment->free.all();
  });
  segments_.push_back(std::make_shared<Segment>(made_ + 1, driver_.MakeSegment(RoundUp(bytes, kSmallest))));
  ++made_;
}

}  // namespace layercast::cuda_ipc_channel
