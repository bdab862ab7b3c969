// What serving a receiver costs the trainer's process, as the receiver is told.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/session/publishing.h"
#include "tests/support/session/raw_version.h"

namespace layercast::testing {
namespace {

class ServingCostTest : public SessionTest {
 protected:
  // The publisher has sent all that is to be had, and is asked what that cost.
  void ServeUntilAsked(RawVersion& publisher) const {
    const auto heard = [&] { return wire::Decode(publisher.link.ReceiveBytes()).message; };
    publisher.Welcome();
    EXPECT_TRUE(std::holds_alternative<wire::Subscribe>(heard()));
    publisher.Send(wire::Subscribed{publisher.offer.id, DigestsOf(schedule_, weights_), {}});
    EXPECT_TRUE(std::holds_alternative<wire::Progress>(heard()));  // it has all
    EXPECT_TRUE(std::holds_alternative<wire::CostRequest>(heard()));
  }

  const Weights weights_ = SomeWeights();
  const Schedule schedule_ = SomeSchedule(false);
  RawVersion publisher_{weights_};
};

// The answer is waited for only for a moment, within which it may not come on a busy machine: then it is asked again.
TEST_F(ServingCostTest, IsWhatThePublisherSaysWhateverCrossesTheQuestion) {
  double core_seconds = 0;
  for (const Deadline deadline = Soon(); core_seconds == 0 && !deadline.Passed();) {
    RawVersion publisher(weights_);
    auto fetched = FetchInBackground(publisher.link.endpoint(), channels_, schedule_, {});
    ServeUntilAsked(publisher);
    publisher.Send(wire::Pong{});
    publisher.Send(wire::ChunksReady{1});
    publisher.Send(wire::ServingCost{2'500'000});
    const Fetched done = fetched.get();
    ASSERT_EQ(done.error, "");
    core_seconds = done.stats.publishers.at(0).serving_core_seconds;
  }
  EXPECT_EQ(core_seconds, 2.5);
}

TEST_F(ServingCostTest, IsNotWaitedForLongNorAReasonToFail) {
  auto fetched = FetchInBackground(publisher_.link.endpoint(), channels_, schedule_, {});
  ServeUntilAsked(publisher_);
  const Fetched done = fetched.get();
  EXPECT_EQ(done.error, "");
  EXPECT_EQ(done.sink.chunks, (std::map<std::uint32_t, std::vector<std::byte>>{{0, BytesOf(schedule_, weights_)[0]},
                                                                               {1, BytesOf(schedule_, weights_)[1]},
                                                                               {2, BytesOf(schedule_, weights_)[2]}}));
  EXPECT_EQ(done.stats.publishers.at(0).serving_core_seconds, 0);
}

TEST_F(ServingCostTest, OfOneThatRefusesToSayIsNotKnown) {
  auto fetched = FetchInBackground(publisher_.link.endpoint(), channels_, schedule_, {});
  ServeUntilAsked(publisher_);
  publisher_.Send(wire::Refused{ErrorCode::kInternal, "no"});
  const Fetched done = fetched.get();
  EXPECT_EQ(done.error, "");
  EXPECT_EQ(done.stats.publishers.at(0).serving_core_seconds, 0);
}

TEST_F(SessionTest, WhatAReceiverTakesCostsMoreTheMoreItIs) {
  const auto service = MakeService();
  Weights weights;
  weights.AddRandom({"w", DType::kF32, {16, 1 << 18}}, 1);
  const PublishedWeights published(*service, weights, "run", 3);
  // Again where the answer did not come in time.
  const auto cost_of = [&](std::uint64_t rows) {
    Schedule schedule;
    for (std::uint64_t row = 0; row < rows; ++row) {
      schedule.Add(std::vector<Region>{{.tensor = 0, .offset = row << 20, .row_bytes = 1 << 20, .rows = 1}});
    }
    double cost = 0;
    for (const Deadline deadline = Soon(); cost == 0 && !deadline.Passed();) {
      CollectingSink sink;
      const auto session = Open(*service, "zmq");
      session->Fetch(schedule, {}, sink, Soon());
      session->AwaitCosts();
      cost = session->stats().publishers.at(0).serving_core_seconds;
    }
    return cost;
  };
  ASSERT_GT(cost_of(1), 0);  // the channel may be measured at first
  // The least of several: a thread may be charged for time in which its host did not let it run.
  const double little = std::min({cost_of(1), cost_of(1), cost_of(1)});
  EXPECT_GT(cost_of(16), little);
}

}  // namespace
}  // namespace layercast::testing
