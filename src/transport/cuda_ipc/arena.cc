#include "src/transport/cuda_ipc/arena.h"

#include <iterator>
#include <numeric>

#include "src/base/rounding.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr std::size_t kBlockAlignment = 256;             // as cudaMalloc's
constexpr std::size_t kSmallest = std::size_t{2} << 20;  // what a device maps at once

std::size_t RoundedUp(std::size_t bytes) { return RoundUp(bytes, kBlockAlignment); }

}  // namespace

Block::~Block() {
  if (segment_ != nullptr) arena_->GiveBack(*segment_, offset_, bytes_);
}

std::vector<Block> Arena::Allocate(std::span<const std::size_t> sizes) {
  std::vector<Block> blocks(sizes.size());  // goes after the lock, which giving blocks back takes
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
  auto [range, added] = segment.free.emplace(offset, bytes);
  if (const auto next = std::next(range); next != segment.free.end() && range->first + range->second == next->first) {
    range->second += next->second;
    segment.free.erase(next);
  }
  if (range == segment.free.begin()) return;
  if (const auto before = std::prev(range); before->first + before->second == range->first) {
    before->second += range->second;
    segment.free.erase(range);
  }
}

Block Arena::TakeBestFit(std::size_t bytes) {
  std::shared_ptr<Segment> best;
  std::pair<std::size_t, std::size_t> range;  // offset, bytes
  for (const std::shared_ptr<Segment>& segment : segments_) {
    for (const auto& [offset, size] : segment->free) {
      if (size < bytes || (best != nullptr && size >= range.second)) continue;
      best = segment;
      range = {offset, size};
    }
  }
  if (best == nullptr) return {};
  best->free.erase(range.first);
  if (range.second != bytes) best->free.emplace(range.first + bytes, range.second - bytes);
  return {*this, best, range.first, bytes};
}

void Arena::AddSegment(std::size_t bytes) {
  std::erase_if(segments_, [](const std::shared_ptr<Segment>& segment) {
    return segment->memory->kept_by_mappings() && segment->free.size() == 1 &&
           segment->free.begin()->second == segment->memory->size();
  });
  auto segment = std::make_shared<Segment>();
  segment->memory = driver_.MakeSegment(RoundUp(bytes, kSmallest));
  segment->number = ++made_;
  segment->free.emplace(0, segment->memory->size());
  segments_.push_back(std::move(segment));
}

}  // namespace layercast::cuda_ipc_channel
