// What a publisher remembers of its receivers' schedules: those that were asked for last.
#include "src/session/recent_schedules.h"

#include <gtest/gtest.h>

#include <vector>

namespace layercast {
namespace {

constexpr std::size_t kPlenty = std::size_t{1} << 20;

Schedule OfRegions(std::uint64_t count) {
  Schedule schedule;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::vector<Region> regions = {{.tensor = 0, .offset = 16 * i, .row_bytes = 16, .rows = 1, .stride = 0}};
    schedule.Add(regions);
  }
  return schedule;
}

class RecentSchedulesTest : public ::testing::Test {
 protected:
  static Digest Put(RecentSchedules& recent, std::uint64_t regions) {
    Schedule schedule = OfRegions(regions);
    const Digest digest = schedule.digest();
    EXPECT_EQ(recent.Put(digest, std::move(schedule))->chunks().size(), regions);
    return digest;
  }
};

TEST_F(RecentSchedulesTest, ForgetsTheOneThatWasAskedForLongestAgo) {
  RecentSchedules recent(2, kPlenty);
  const Digest first = Put(recent, 1);
  const Digest second = Put(recent, 2);
  EXPECT_NE(recent.Find(first), nullptr);
  const Digest third = Put(recent, 3);
  EXPECT_EQ(recent.Find(second), nullptr);
  ASSERT_NE(recent.Find(first), nullptr);
  EXPECT_EQ(recent.Find(first)->digest(), first);
  ASSERT_NE(recent.Find(third), nullptr);
  EXPECT_EQ(recent.Find(third)->digest(), third);
}

TEST_F(RecentSchedulesTest, KeepsNoMoreBytesThanItMayButForTheLast) {
  RecentSchedules recent(256, 10 * (sizeof(Region) + sizeof(Chunk)));
  const Digest small = Put(recent, 4);
  const Digest middle = Put(recent, 6);
  EXPECT_NE(recent.Find(small), nullptr);
  EXPECT_NE(recent.Find(middle), nullptr);
  const Digest large = Put(recent, 11);
  EXPECT_EQ(recent.Find(small), nullptr);
  EXPECT_EQ(recent.Find(middle), nullptr);
  EXPECT_NE(recent.Find(large), nullptr);
}

TEST_F(RecentSchedulesTest, WhatItForgetsStaysWithWhoeverUsesIt) {
  RecentSchedules recent(1, kPlenty);
  const Digest first = Put(recent, 1);
  const std::shared_ptr<const Schedule> used = recent.Find(first);
  Put(recent, 2);
  EXPECT_EQ(recent.Find(first), nullptr);
  EXPECT_EQ(used->digest(), first);
}

}  // namespace
}  // namespace layercast
