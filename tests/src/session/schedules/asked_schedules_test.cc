#include "src/session/schedules/asked_schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "src/base/digest/digest.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;

constexpr Digest kLayout{1, 1};
constexpr Digest kOther{2, 2};

class AskedSchedulesTest : public ::testing::Test {
 protected:
  AskedSchedulesTest() {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i * 31);
  }

  // Chunks of so many bytes, as many as the tensor has.
  std::shared_ptr<const Schedule> InChunksOf(std::uint64_t bytes) const {
    Schedule schedule;
    for (std::uint64_t begin = 0; begin < bytes_.size(); begin += bytes) {
      const Region region{.tensor = 0, .offset = begin, .row_bytes = bytes, .rows = 1, .stride = bytes};
      schedule.Add({&region, 1});
    }
    return std::make_shared<const Schedule>(std::move(schedule));
  }
  void Ask(const Digest& layout, const std::shared_ptr<const Schedule>& schedule) {
    asked_.Note(layout, schedule->digest(), schedule);
  }
  DigestsBySchedule Next(const Digest& layout) { return asked_.DigestsOf(layout, offer_, pool_); }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(60);
  const Offer offer_{.id = 1, .tensors = {{bytes_.data(), bytes_.size()}}};
  WorkerPool pool_{2};
  AskedSchedules asked_;
};

TEST_F(AskedSchedulesTest, AreDigestedForTheNextVersionOfTheirLayout) {
  const auto schedule = InChunksOf(20);
  Ask(kLayout, schedule);
  const DigestsBySchedule digests = Next(kLayout);
  ASSERT_EQ(digests.size(), 1U);
  EXPECT_THAT(digests.at(schedule->digest()),
              ElementsAre(DigestOf(std::span(bytes_).first(20)), DigestOf(std::span(bytes_).subspan(20, 20)),
                          DigestOf(std::span(bytes_).subspan(40))));
  EXPECT_TRUE(Next(kOther).empty());
  EXPECT_EQ(Next(kLayout).size(), 1U);  // a version that nobody asked for changes nothing
}

TEST_F(AskedSchedulesTest, OfAnEarlierVersionAreForgotten) {
  Ask(kLayout, InChunksOf(20));
  EXPECT_EQ(Next(kLayout).size(), 1U);
  const auto other = InChunksOf(30);
  Ask(kLayout, other);
  EXPECT_TRUE(Next(kLayout).contains(other->digest()));
  EXPECT_EQ(Next(kLayout).size(), 1U);
}

TEST_F(AskedSchedulesTest, ReadTheVersionTwiceAtMost) {
  const std::vector<std::shared_ptr<const Schedule>> schedules = {InChunksOf(10), InChunksOf(12), InChunksOf(15)};
  for (const auto& schedule : schedules) Ask(kLayout, schedule);
  Ask(kLayout, schedules[0]);  // it is the latest now
  const DigestsBySchedule digests = Next(kLayout);
  EXPECT_EQ(digests.size(), 2U);
  EXPECT_TRUE(digests.contains(schedules[0]->digest()) && digests.contains(schedules[2]->digest()));
}

}  // namespace
}  // namespace layercast
