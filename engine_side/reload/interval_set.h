// Half-open, disjoint ranges of bytes: what of a placement has arrived. In order it is one range; so a pass over it is
// short. Value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace layercast {

class IntervalSet {
 public:
  // False, and nothing changes, when a part of [begin, end) is there already. An empty range is always new.
  bool Add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return begin == end;
    const auto after = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                        [](const auto& range, std::uint64_t at) { return range.second <= at; });
    if (after != ranges_.end() && after->first < end) return false;
    const bool joins_before = after != ranges_.begin() && std::prev(after)->second == begin;
    const bool joins_after = after != ranges_.end() && after->first == end;
    if (joins_before && joins_after) {
      std::prev(after)->second = after->second;
      ranges_.erase(after);
    } else if (joins_before) {
      std::prev(after)->second = end;
    } else if (joins_after) {
      after->first = begin;
    } else {
      ranges_.insert(after, {begin, end});
    }
    covered_ += end - begin;
    return true;
  }

  std::uint64_t covered() const { return covered_; }
  const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges() const { return ranges_; }

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;  // sorted
  std::uint64_t covered_ = 0;
};

}  // namespace layercast
