// A set of half-open, disjoint ranges of bytes: what has arrived of a placement. If pieces come in order, it is one
// range that begins at 0, and most placements never need more. Other ranges are few, so a pass over them is short. Used
// by LayerBuffer. Value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace layercast {

class IntervalSet {
 public:
  // Adds [begin, end). Returns false and changes nothing if some of it is in the set already. An empty range is always
  // new.
  bool Add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return begin == end;
    const auto after = std::lower_bound(others_.begin(), others_.end(), begin,
                                        [](const Range& range, std::uint64_t at) { return range.second <= at; });
    if (begin < first_end_ || (after != others_.end() && after->first < end)) return false;
    covered_ += end - begin;
    const bool joins_before = after != others_.begin() && std::prev(after)->second == begin;
    const bool joins_after = after != others_.end() && after->first == end;
    if (begin == first_end_) {
      first_end_ = joins_after ? after->second : end;
      if (joins_after) others_.erase(after);
    } else if (joins_before && joins_after) {
      std::prev(after)->second = after->second;
      others_.erase(after);
    } else if (joins_before) {
      std::prev(after)->second = end;
    } else if (joins_after) {
      after->first = begin;
    } else {
      others_.insert(after, {begin, end});
    }
    return true;
  }

  std::uint64_t covered() const { return covered_; }
  // The ranges, sorted. No two of them touch.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges() const {
    std::vector<Range> all;
    if (first_end_ != 0) all.emplace_back(0, first_end_);
    all.insert(all.end(), others_.begin(), others_.end());
    return all;
  }

 private:
  using Range = std::pair<std::uint64_t, std::uint64_t>;

  std::uint64_t first_end_ = 0;  // of the range that begins at 0
  std::vector<Range> others_;    // sorted
  std::uint64_t covered_ = 0;
};

}  // namespace layercast
