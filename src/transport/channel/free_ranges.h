// The free ranges of one segment of an arena. Value. Used by the arenas of shm and cuda_ipc.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <optional>

namespace layercast {

class FreeRanges {
 public:
  struct Range {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  // All of a segment of `size` bytes is free.
  explicit FreeRanges(std::size_t size) : size_(size), ranges_{{0, size}} {}

  bool all() const { return ranges_.size() == 1 && ranges_.begin()->second == size_; }
  // The smallest free range into which `bytes` bytes fit; nullopt if there is none.
  std::optional<Range> BestFit(std::size_t bytes) const {
    std::optional<Range> best;
    for (const auto& [offset, size] : ranges_) {
      if (size >= bytes && (!best || size < best->bytes)) best = {offset, size};
    }
    return best;
  }
  // Takes the first `bytes` bytes of a free range.
  void Take(const Range& range, std::size_t bytes) {
    ranges_.erase(range.offset);
    if (range.bytes != bytes) ranges_.emplace(range.offset + bytes, range.bytes - bytes);
  }
  void GiveBack(std::size_t offset, std::size_t bytes) {
    auto [range, added] = ranges_.emplace(offset, bytes);
    if (const auto next = std::next(range); next != ranges_.end() && range->first + range->second == next->first) {
      range->second += next->second;
      ranges_.erase(next);
    }
    if (range == ranges_.begin()) return;
    if (const auto before = std::prev(range); before->first + before->second == range->first) {
      before->second += range->second;
      ranges_.erase(range);
    }
  }

 private:
  std::size_t size_;
  std::map<std::size_t, std::size_t> ranges_;  // offset -> bytes; neighbours are joined
};

}  // namespace layercast
