// What serving a receiver costs the trainer's process, as the receiver is told.
#include <gtest/gtest.h>

#include "tests/session/publishing.h"
#include "tests/session/raw_version.h"

namespace layercast::testing {
namespace {

class ServingCostTest : public SessionTest {
 protected:
  // The publisher has sent all that is to be had, and is asked what that cost.
  void ServeUntilAsked() {
    publisher_.Welcome();
    EXPECT_TRUE(std::holds_alternative<wire::Subscribe>(Heard()));
    publisher_.Send(wire::Subscribed{publisher_.offer.id, DigestsOf(schedule_, weights_), {}});
    EXPECT_TRUE(std::holds_alternative<wire::CostRequest>(Heard()));
  }
  wire::Message Heard() { return wire::Decode(publisher_.link.ReceiveBytes()).message; }

  const Weights weights_ = SomeWeights();
  const Schedule schedule_ = SomeSchedule(false);
  RawVersion publisher_{weights_};
};

TEST_F(ServingCostTest, IsWhatThePublisherSaysWhateverCrossesTheQuestion) {
  auto fetched = FetchInBackground(publisher_.link.endpoint(), channels_, schedule_, {});
  ServeUntilAsked();
  publisher_.Send(wire::Pong{});
  publisher_.Send(wire::ChunksReady{1});
  publisher_.Send(wire::ServingCost{2'500'000});
  const Fetched done = fetched.get();
  EXPECT_EQ(done.error, "");
  EXPECT_EQ(done.stats.publishers.at(0).serving_core_seconds, 2.5);
}

TEST_F(ServingCostTest, IsNotWaitedForLongNorAReasonToFail) {
  auto fetched = FetchInBackground(publisher_.link.endpoint(), channels_, schedule_, {});
  ServeUntilAsked();
  const Fetched done = fetched.get();
  EXPECT_EQ(done.error, "");
  EXPECT_EQ(done.sink.chunks, (std::map<std::uint32_t, std::vector<std::byte>>{{0, BytesOf(schedule_, weights_)[0]},
                                                                               {1, BytesOf(schedule_, weights_)[1]},
                                                                               {2, BytesOf(schedule_, weights_)[2]}}));
  EXPECT_EQ(done.stats.publishers.at(0).serving_core_seconds, 0);
}

TEST_F(ServingCostTest, OfOneThatRefusesToSayIsNotKnown) {
  auto fetched = FetchInBackground(publisher_.link.endpoint(), channels_, schedule_, {});
  ServeUntilAsked();
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
  const auto cost_of = [&](std::uint64_t rows) {
    Schedule schedule;
    for (std::uint64_t row = 0; row < rows; ++row) {
      schedule.Add(std::vector<Region>{{.tensor = 0, .offset = row << 20, .row_bytes = 1 << 20, .rows = 1}});
    }
    CollectingSink sink;
    return Open(*service, "zmq")->Fetch(schedule, {}, sink, Soon()).publishers.at(0).serving_core_seconds;
  };
  EXPECT_GT(cost_of(1), 0);  // the channel may be measured at first
  const double little = cost_of(1);
  EXPECT_GT(cost_of(16), little);
}

}  // namespace
}  // namespace layercast::testing
