// What a publisher notes of its receivers, for metrics: what they took, and what they were refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/error_of.h"
#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// The desk hears of an end soon after the session is closed.
TakerCounts CountsOnceClosed(const TakerTally& takers) {
  const Deadline deadline = Soon();
  while (takers.Counts().sessions != 0 && !deadline.Passed()) std::this_thread::yield();
  return takers.Counts();
}

class TakersTest : public SessionTest {
 protected:
  const std::unique_ptr<OfferService> service_ = MakeService();
  const Weights weights_ = SomeWeights();
  const PublishedWeights published_{*service_, weights_, "run", 7};
  const Schedule schedule_ = SomeSchedule(false);
};

TEST_F(TakersTest, AReceiverIsKnownByWhatItTookHoweverQuicklyItDid) {
  for (const char* channel : {"inproc", "shm", "zmq"}) {
    const auto session = Open(*service_, channel);
    EXPECT_EQ(takers_.Counts().sessions, 1U);
    CollectingSink sink;
    session->Fetch(schedule_, {}, sink, Soon());
    session->Close();
    CountsOnceClosed(takers_);
  }
  const TakerCounts counts = takers_.Counts();
  ASSERT_EQ(counts.takers.size(), 1U);
  EXPECT_EQ(counts.takers[0].engine, "engine");
  EXPECT_EQ(counts.takers[0].bytes, 3 * schedule_.total_bytes());
  EXPECT_GT(counts.takers[0].bytes_per_second, 0U);
  EXPECT_EQ(counts.takers[0].syncs, 3U);
  EXPECT_THAT(counts.takers[0].steps, ElementsAre(Pair("run", 7)));
}

TEST_F(TakersTest, WhoLeavesEarlyHasTakenNoVersion) {
  Open(*service_, "zmq")->Close();
  const TakerCounts counts = CountsOnceClosed(takers_);
  EXPECT_EQ(counts.takers.at(0).syncs, 0U);
  EXPECT_EQ(counts.takers.at(0).bytes, 0U);
}

TEST_F(TakersTest, ARefusalIsCountedByItsCode) {
  ErrorOf([&] { Open(*service_, "zmq", "another"); }, ErrorCode::kNotFound);
  EXPECT_THAT(takers_.Counts().refusals, ElementsAre(Pair(ErrorCode::kNotFound, 1)));
}

}  // namespace
}  // namespace layercast::testing
