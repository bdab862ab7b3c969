// Engines that keep the source of what they serve, and take the next versions as deltas of it: what they then serve is
// what a cold load makes of the same weights, and what is kept moves on with commits alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "layercast/error.h"
#include "layercast/publisher.h"
#include "tests/support/reload/armed_failpoints.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::RigOptions;

class ReceiverDeltaTest : public ::testing::Test {
 protected:
  void Restart() { publisher_ = std::make_unique<Publisher>(PublisherOptions{.retained_versions = 3}); }
  static std::unique_ptr<ReceiverRig> Rank(const std::string& recipe, ParallelConfig parallel = {}) {
    return std::make_unique<ReceiverRig>(RigOptions{.recipe = recipe, .parallel = parallel, .keep_source = true});
  }
  // The next version: so many of ten thousand elements have a bit of their mantissa changed, or all tensors are new.
  const testing::Weights& Publish(int changed) {
    testing::Weights& next = versions_.emplace_back(versions_.empty() ? testing::RigWeights({}, 1) : versions_.back());
    for (std::size_t tensor = 0; tensor < next.size(); ++tensor) {
      std::vector<std::byte>& bytes = next.bytes(tensor);
      for (std::size_t at = 0; at < bytes.size(); at += 2) {
        if (static_cast<int>(random_() % 10'000) < changed) bytes[at] ^= static_cast<std::byte>(1U << (random_() % 7));
      }
    }
    PublishOptions options{.lineage = "run", .step = versions_.size()};
    (void)publisher_->Publish(options, {.specs = testing::SpecsOf(next),
                                        .walk = [&](std::span<const std::string>) { return next.Stream(); }});
    return next;
  }
  ReloadReport Take(ReceiverRig& rig) const {
    return rig.receiver->ReloadWeights(FromPublisher(publisher_->endpoint(), "run"));
  }
  static void ExpectServes(const ReceiverRig& rig, const testing::Weights& weights) {
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
    EXPECT_TRUE(rig.engine.CanariesAreAlive());
  }

  std::mt19937 random_{11};
  std::deque<testing::Weights> versions_;
  std::unique_ptr<Publisher> publisher_ = std::make_unique<Publisher>(PublisherOptions{.retained_versions = 3});
};

TEST_F(ReceiverDeltaTest, OverEveryRecipeAndRankTheServedBytesEqualAColdLoad) {
  constexpr int kChanged[] = {100, 0, 1, 2'000, 10'000, 30};
  std::vector<std::unique_ptr<ReceiverRig>> ranks;
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "nvfp4"}) {
    ranks.push_back(Rank(recipe));
    ranks.push_back(Rank(recipe, {1, 2}));
  }
  Publish(0);
  for (const auto& rank : ranks) EXPECT_FALSE(Take(*rank).delta->taken);
  for (const int changed : kChanged) {
    const testing::Weights& weights = Publish(changed);
    for (const auto& rank : ranks) {
      if (changed == 0 && rank == ranks.front()) continue;  // which is a step behind then
      const ReloadReport report = Take(*rank);
      ASSERT_TRUE(report.delta.has_value());
      EXPECT_TRUE(report.delta->taken) << report.delta->why;
      EXPECT_EQ(report.bytes, report.bytes_total);
      EXPECT_EQ(report.delta->dense_bytes, report.bytes_total);
      EXPECT_EQ(report.publishers.front().bytes, report.delta->encoded_bytes);
      if (changed <= 100) {
        EXPECT_LT(report.delta->encoded_bytes, report.bytes_total / 20);
      }
      ExpectServes(*rank, weights);
    }
  }
}

TEST_F(ReceiverDeltaTest, AReloadThatFailsOrIsGivenUpLeavesWhatIsKept) {
  std::unique_ptr<ReceiverRig> rank;
  {
    const testing::ArmedFailpoints armed("rank0:receive.chunk=corrupt@5");
    rank = Rank("fp8_per_channel");
  }
  Publish(0);
  EXPECT_THAT(testing::ErrorOf([&] { Take(*rank); }), HasSubstr("digest expected"));  // nothing is kept of that
  EXPECT_FALSE(Take(*rank).delta->taken);
  const testing::Weights& second = Publish(100);
  rank->receiver->Stage(FromPublisher(publisher_->endpoint(), "run"));
  rank->receiver->Abort();
  const ReloadReport report = Take(*rank);
  EXPECT_TRUE(report.delta->taken) << report.delta->why;
  EXPECT_EQ(report.delta->base.step, 1U);
  ExpectServes(*rank, second);
}

TEST_F(ReceiverDeltaTest, WhatIsKeptMovesOnWithTheCommit) {
  const auto rank = Rank("none");
  Publish(0);
  Take(*rank);
  Publish(100);
  rank->receiver->Stage(FromPublisher(publisher_->endpoint(), "run"));
  rank->receiver->Commit();
  const testing::Weights& third = Publish(100);
  const ReloadReport report = Take(*rank);
  EXPECT_EQ(report.delta->base.step, 2U);
  EXPECT_TRUE(report.delta->taken);
  ExpectServes(*rank, third);
}

TEST_F(ReceiverDeltaTest, AfterAVersionFromElsewhereTheNextComesDense) {
  const auto rank = Rank("none");
  Publish(0);
  Take(*rank);
  rank->receiver->ReloadWeights(testing::EagerSource(versions_.back()));
  const testing::Weights& second = Publish(100);
  const ReloadReport report = Take(*rank);
  EXPECT_FALSE(report.delta->taken);
  EXPECT_THAT(report.delta->why, HasSubstr("nothing is kept yet"));
  ExpectServes(*rank, second);
}

TEST_F(ReceiverDeltaTest, APublisherThatWasStartedAnewSendsAllBytes) {
  const auto rank = Rank("fp8_per_block");
  Publish(0);
  Take(*rank);
  Restart();
  const testing::Weights& second = Publish(100);
  const ReloadReport report = Take(*rank);
  EXPECT_FALSE(report.delta->taken);
  EXPECT_THAT(report.delta->why, HasSubstr("the publisher does not keep run@1"));
  EXPECT_THAT(report.ToJson(), HasSubstr("\"delta\":{\"taken\":false,\"why\":\"the publisher does not keep run@1"));
  ExpectServes(*rank, second);
}

TEST_F(ReceiverDeltaTest, AnEngineSomeStepsBehindTakesADeltaForAsLongAsItsVersionIsKept) {
  const auto rank = Rank("none");
  Publish(0);
  Take(*rank);
  Publish(100);
  const testing::Weights& third = Publish(100);
  EXPECT_TRUE(Take(*rank).delta->taken);
  ExpectServes(*rank, third);
  Publish(100);
  Publish(100);
  const testing::Weights& sixth = Publish(100);
  const ReloadReport report = Take(*rank);
  EXPECT_FALSE(report.delta->taken);
  EXPECT_THAT(report.delta->why, HasSubstr("the publisher does not keep run@3"));
  ExpectServes(*rank, sixth);
}

TEST_F(ReceiverDeltaTest, WhoKeepsNoSourceReportsNothingOfDeltas) {
  ReceiverRig rank;
  Publish(0);
  const ReloadReport report = Take(rank);
  EXPECT_FALSE(report.delta.has_value());
  EXPECT_THAT(report.ToJson(), HasSubstr("\"delta\":null"));
}

}  // namespace
}  // namespace layercast
