// What a publisher remembers of its receivers' schedules: those that were asked for last.
#include "src/session/schedules/recent_schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/error_of.h"

namespace layercast {
namespace {

constexpr std::size_t BytesOf(std::size_t regions) { return regions * (sizeof(Region) + sizeof(Chunk)); }

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
  RecentSchedules recent({.kept = 2});
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
  RecentSchedules recent({.kept_bytes = BytesOf(10)});
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
  RecentSchedules recent({.kept = 1});
  const Digest first = Put(recent, 1);
  const std::shared_ptr<const Schedule> used = recent.Find(first);
  Put(recent, 2);
  EXPECT_EQ(recent.Find(first), nullptr);
  EXPECT_EQ(used->digest(), first);
}

TEST_F(RecentSchedulesTest, CountsWhatItForgotAsLongAsSomebodyUsesIt) {
  RecentSchedules recent({.kept = 1, .bytes = BytesOf(10)});
  std::shared_ptr<const Schedule> used = recent.Find(Put(recent, 6));
  Put(recent, 4);
  EXPECT_THAT(testing::ErrorOf([&] { Put(recent, 5); }, ErrorCode::kResourceExhausted),
              ::testing::HasSubstr("the schedules of the sessions that are open have " + std::to_string(BytesOf(6)) +
                                   " bytes: with " + std::to_string(BytesOf(5)) + " more"));
  used.reset();
  Put(recent, 5);
}

}  // namespace
}  // namespace layercast
