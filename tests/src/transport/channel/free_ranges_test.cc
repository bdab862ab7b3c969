// What is free of a segment, against a map of its bytes.
#include "src/transport/channel/free_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace layercast {
namespace {

// The slow, obvious way: each byte is free or not.
class FreeBytes {
 public:
  explicit FreeBytes(std::size_t size) : free_(size, true) {}

  bool all() const {
    return std::ranges::all_of(free_, [](bool free) { return free; });
  }
  // As FreeRanges has it; the first of several that are equally small.
  std::optional<FreeRanges::Range> BestFit(std::size_t bytes) const {
    std::optional<FreeRanges::Range> best;
    for (std::size_t first = 0; first < free_.size();) {
      std::size_t end = first;
      while (end < free_.size() && free_[end]) ++end;
      const std::size_t length = end - first;
      if (length > 0 && length >= bytes && (!best || length < best->bytes)) best = {first, length};
      first = end + 1;
    }
    return best;
  }
  // False if they were not all as they must be before.
  bool Set(std::size_t offset, std::size_t bytes, bool free) {
    bool right = true;
    for (std::size_t i = offset; i < offset + bytes; ++i) {
      right = right && free_.at(i) != free;
      free_[i] = free;
    }
    return right;
  }

 private:
  std::vector<bool> free_;
};

constexpr std::size_t kSegmentBytes = 100;

// Ranges and the reference, side by side, and what was taken of both.
class FreeRangesBesideBytes : public ::testing::Test {
 protected:
  void ExpectAlike() const {
    EXPECT_EQ(ranges_.all(), bytes_.all());
    for (std::size_t bytes = 1; bytes <= kSegmentBytes + 1; ++bytes) {
      const auto found = ranges_.BestFit(bytes);
      const auto expected = bytes_.BestFit(bytes);
      ASSERT_EQ(found.has_value(), expected.has_value()) << bytes;
      if (!found) continue;
      ASSERT_EQ(found->offset, expected->offset) << bytes;
      ASSERT_EQ(found->bytes, expected->bytes) << bytes;
    }
  }
  void Take(std::size_t bytes) {
    const auto range = ranges_.BestFit(bytes);
    if (!range) return;
    ranges_.Take(*range, bytes);
    EXPECT_TRUE(bytes_.Set(range->offset, bytes, false));
    taken_.emplace_back(range->offset, bytes);
  }
  void GiveBack(std::size_t index) {
    std::swap(taken_.at(index), taken_.back());
    const auto [offset, bytes] = taken_.back();
    taken_.pop_back();
    ranges_.GiveBack(offset, bytes);
    EXPECT_TRUE(bytes_.Set(offset, bytes, true));
  }

  FreeRanges ranges_{kSegmentBytes};
  FreeBytes bytes_{kSegmentBytes};
  std::vector<std::pair<std::size_t, std::size_t>> taken_;  // offset, bytes
};

TEST_F(FreeRangesBesideBytes, AreThoseOfTheBytesWhateverIsTakenAndGivenBack) {
  std::mt19937 random(7);
  for (int step = 0; step < 1000; ++step) {
    const bool filling = step / 100 % 2 == 0;  // mostly taking, then mostly giving back
    if (taken_.empty() || (random() % 4 == 0) != filling) {
      Take(1 + random() % (random() % 8 == 0 ? kSegmentBytes : 10));
    } else {
      GiveBack(random() % taken_.size());
    }
    ASSERT_NO_FATAL_FAILURE(ExpectAlike()) << "step " << step;
  }
  while (!taken_.empty()) GiveBack(random() % taken_.size());
  EXPECT_TRUE(ranges_.all());
  ExpectAlike();
}

TEST_F(FreeRangesBesideBytes, AllOfThemMayBeTakenAtOnce) {
  Take(kSegmentBytes);
  EXPECT_FALSE(ranges_.BestFit(1));
  EXPECT_FALSE(ranges_.all());
  GiveBack(0);
  EXPECT_TRUE(ranges_.all());
  ExpectAlike();
}

}  // namespace
}  // namespace layercast
