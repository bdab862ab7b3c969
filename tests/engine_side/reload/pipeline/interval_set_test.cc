#include "engine_side/reload/pipeline/interval_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(IntervalSet, JoinsNeighboursOnBothSides) {
  IntervalSet set;
  EXPECT_TRUE(set.Add(10, 20));
  EXPECT_TRUE(set.Add(30, 40));
  EXPECT_TRUE(set.Add(20, 25));
  EXPECT_TRUE(set.Add(28, 30));
  EXPECT_THAT(set.ranges(), ElementsAre(Pair(10, 25), Pair(28, 40)));
  EXPECT_TRUE(set.Add(25, 28));
  EXPECT_THAT(set.ranges(), ElementsAre(Pair(10, 40)));
  EXPECT_EQ(set.covered(), 30U);
}

TEST(IntervalSet, JoinsTheRangeThatBeginsAtZeroToTheOthers) {
  IntervalSet set;
  EXPECT_TRUE(set.Add(4, 6));
  EXPECT_TRUE(set.Add(0, 2));
  EXPECT_THAT(set.ranges(), ElementsAre(Pair(0, 2), Pair(4, 6)));
  EXPECT_FALSE(set.Add(1, 3));
  EXPECT_FALSE(set.Add(2, 5));
  EXPECT_TRUE(set.Add(2, 4));
  EXPECT_THAT(set.ranges(), ElementsAre(Pair(0, 6)));
  EXPECT_TRUE(set.Add(6, 7));
  EXPECT_THAT(set.ranges(), ElementsAre(Pair(0, 7)));
  EXPECT_EQ(set.covered(), 7U);
}

TEST(IntervalSet, RefusesWhatIsThereAndChangesNothing) {
  IntervalSet set;
  set.Add(10, 20);
  for (const auto& [begin, end] : {std::pair(10, 20), std::pair(19, 21), std::pair(0, 11), std::pair(12, 13),
                                   std::pair(0, 100), std::pair(20, 10)}) {
    EXPECT_FALSE(set.Add(static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)));
  }
  EXPECT_TRUE(set.Add(15, 15)) << "an empty range is always new";
  EXPECT_THAT(set.ranges(), ElementsAre(Pair(10, 20)));
  EXPECT_EQ(set.covered(), 10U);
}

TEST(IntervalSet, AgreesWithOneFlagPerByte) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    IntervalSet set;
    std::vector<bool> there(40);
    for (int step = 0; step < 30; ++step) {
      const std::uint64_t begin = random() % 40;
      const std::uint64_t end = begin + random() % (41 - begin);
      bool is_new = true;
      for (std::uint64_t i = begin; i < end; ++i) is_new = is_new && !there[i];
      ASSERT_EQ(set.Add(begin, end), is_new);
      for (std::uint64_t i = begin; i < end && is_new; ++i) there[i] = true;
    }
    std::uint64_t in_ranges = 0;
    std::int64_t before = -1;  // where the range before ends
    for (const auto& [begin, end] : set.ranges()) {
      ASSERT_LT(before, static_cast<std::int64_t>(begin));
      before = static_cast<std::int64_t>(end);
      for (std::uint64_t i = begin; i < end; ++i) ASSERT_TRUE(there[i]);
      in_ranges += end - begin;
    }
    EXPECT_EQ(in_ranges, static_cast<std::uint64_t>(std::count(there.begin(), there.end(), true)));
    EXPECT_EQ(set.covered(), in_ranges);
  }
}

}  // namespace
}  // namespace layercast
