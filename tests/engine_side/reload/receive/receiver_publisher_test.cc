// A publisher and its receivers in one program, over every channel: several engines take one snapshot at once, whatever
// was published since, and serve what a cold load makes of the same weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "layercast/error.h"
#include "layercast/publisher.h"
#include "tests/support/channels_here.h"
#include "tests/support/reload/other_layouts.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::Differences;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::RigOptions;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kLong{20'000};

layercast::Weights Published(const testing::Weights& weights) {
  return {.specs = testing::SpecsOf(weights), .walk = [&](std::span<const std::string>) { return weights.Stream(); }};
}

class PublishTest : public ::testing::TestWithParam<std::string> {
 protected:
  // An engine's rank that takes its weights from the publisher over the channel of the test.
  std::unique_ptr<ReceiverRig> Rank(const std::string& recipe, ParallelConfig parallel = {}) const {
    RigOptions options{.recipe = recipe, .parallel = parallel};
    auto rig = std::make_unique<ReceiverRig>(options);
    rig->receiver->SetChannel(GetParam());
    return rig;
  }
  PublishedVersion Publish(std::uint64_t step, PublishMode mode = PublishMode::kSnapshot) {
    return publisher_.Publish({.lineage = "run", .step = step, .mode = mode}, Published(Version(step)));
  }
  const testing::Weights& Version(std::uint64_t step) const { return versions_.at(step - 1); }
  // In a thread of its own: publishers serve whoever asks, whenever.
  std::future<ReloadReport> Take(ReceiverRig& rig, std::optional<std::uint64_t> step = std::nullopt) const {
    return std::async(std::launch::async, [&rig, this, step] {
      return rig.receiver->ReloadWeights(FromPublisher(publisher_.endpoint(), "run", step));
    });
  }
  void ExpectServes(const ReceiverRig& rig, std::uint64_t step) const {
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(Version(step))), IsEmpty());
    EXPECT_TRUE(rig.engine.CanariesAreAlive());
  }

  // The publisher walks them, and no test sees when it is through: they go after it.
  const std::vector<testing::Weights> versions_ = {testing::RigWeights({}, 1), testing::RigWeights({}, 2)};
  std::list<testing::Weights> others_;
  Publisher publisher_{PublisherOptions{}};
};

TEST_P(PublishTest, SeveralEnginesTakeOneSnapshotAtOnce) {
  const PublishedVersion published = Publish(1);
  std::vector<std::unique_ptr<ReceiverRig>> ranks;
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    ranks.push_back(Rank(recipe));
    for (int rank = 0; rank < 2; ++rank) ranks.push_back(Rank(recipe, {rank, 2}));
  }
  std::vector<std::future<ReloadReport>> reloads;
  for (const auto& rank : ranks) reloads.push_back(Take(*rank));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const ReloadReport report = reloads[i].get();
    EXPECT_EQ(report.version, published.version());
    EXPECT_EQ(report.channel, GetParam());
    EXPECT_EQ(report.bytes, report.bytes_total);
    ExpectServes(*ranks[i], 1);
  }
}

TEST_P(PublishTest, TheProgressIsToldFromTheFirstWordToTheLastByte) {
  for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
    const std::uint64_t step = mode == PublishMode::kSnapshot ? 1 : 2;
    const PublishedVersion published = Publish(step, mode);
    const auto rig = Rank("none");
    std::vector<ReloadProgress> told;
    rig->on_progress = [&](const ReloadProgress& progress) { told.push_back(progress); };
    const ReloadReport report = Take(*rig, step).get();
    ASSERT_GE(told.size(), 6U);
    EXPECT_EQ(told.front(), (ReloadProgress{.stage = "connect"}));
    std::vector<std::string> stages;
    for (std::size_t i = 0; i < told.size(); ++i) {
      if (stages.empty() || stages.back() != told[i].stage) stages.push_back(told[i].stage);
      if (i == 0) continue;
      EXPECT_EQ(told[i].version.lineage, "run");
      EXPECT_GE(told[i].bytes, told[i - 1].bytes);
      EXPECT_GE(told[i].layers, told[i - 1].layers);
      EXPECT_EQ(told[i].bytes_total, told[i].stage == "plan" ? 0 : report.bytes_total);
    }
    EXPECT_THAT(stages, ::testing::ElementsAre("connect", "plan", "receive", "verify", "commit", "verify"));
    EXPECT_EQ(told.back().version, published.version());
    EXPECT_EQ(told.back().bytes, report.bytes_total);
    EXPECT_EQ(told.back().layers, report.layers);
    EXPECT_EQ(told.back().layers_total, report.layers);
    ExpectServes(*rig, step);
  }
}

TEST_P(PublishTest, AVersionThatDoesNotFitIsRefusedNamingItsPublisher) {
  const auto rig = Rank("none");
  const testing::Weights& other = others_.emplace_back(testing::RigWeights({.layers = 2}, 1));
  (void)publisher_.Publish({.lineage = "run", .step = 1}, Published(other));
  EXPECT_THAT(testing::ErrorOf([&] { Take(*rig).get(); }),
              AllOf(StartsWith("publisher " + publisher_.endpoint() + ": load plan of "),
                    HasSubstr("the manifest does not fit")));
}

// It waits for a trainer that computes: silence would not tell, since the publisher answers pings. The walk may begin
// before the rank has read the answer to its subscription, so that it waits for that or for the first tensor.
TEST_P(PublishTest, AnAttemptThatIsGivenUpEndsWhileItWaitsForThePublisher) {
  struct Trainer {
    std::promise<void> begun;
    std::promise<void> go_on;
    std::optional<NamedTensor> Compute() {
      begun.set_value();
      go_on.get_future().wait();
      return std::nullopt;
    }
  };
  const auto trainer = std::make_shared<Trainer>();  // the publisher walks it for longer than the test goes on
  const layercast::Weights slow{.specs = testing::SpecsOf(Version(1)), .walk = [trainer](std::span<const std::string>) {
                                  return MakeWeightsIterator([trainer] { return trainer->Compute(); });
                                }};
  (void)publisher_.Publish({.lineage = "run", .step = 1, .mode = PublishMode::kStream}, slow);
  const auto rig = Rank("none");
  auto stage = std::async(std::launch::async, [&] {
    return testing::ErrorOf([&] { rig->receiver->Stage(FromPublisher(publisher_.endpoint(), "run", 1), 3); },
                            ErrorCode::kCancelled);
  });
  trainer->begun.get_future().wait();
  rig->receiver->Cancel(3);
  EXPECT_THAT(stage.get(), AllOf(HasSubstr(publisher_.endpoint()), HasSubstr("this attempt was given up")));
  trainer->go_on.set_value();
}

TEST_P(PublishTest, ALateJoinerTakesTheVersionThatItAsksForWhileOthersTakeTheNewest) {
  const auto early = Rank("fp8_per_channel");
  const auto newest = Rank("fp8_per_channel");
  const auto late = Rank("fp8_per_channel");
  const PublishedVersion first = Publish(1);
  EXPECT_EQ(Take(*early).get().version, first.version());
  const PublishedVersion second = Publish(2);
  auto newest_reload = Take(*newest);
  auto late_reload = Take(*late, 1);
  EXPECT_EQ(newest_reload.get().version, second.version());
  EXPECT_EQ(late_reload.get().version, first.version());
  ExpectServes(*early, 1);
  ExpectServes(*newest, 2);
  ExpectServes(*late, 1);
  EXPECT_EQ(Take(*late).get().version, second.version());  // and catches up
  ExpectServes(*late, 2);
}

TEST_P(PublishTest, AWithdrawnVersionIsReleasedOnceItsReadersAreDoneAndNamedToThoseWhoComeLater) {
  const auto rank = Rank("none");
  const PublishedVersion first = Publish(1);
  Take(*rank).get();
  first.Withdraw();
  EXPECT_TRUE(first.WaitReleased(kLong));
  EXPECT_EQ(first.readers(), 0);
  EXPECT_THAT(testing::ErrorOf([&] { Take(*rank, 1).get(); }), HasSubstr("run@1 is not offered here"));
  ExpectServes(*rank, 1);
}

TEST_P(PublishTest, TheRanksOfAnEngineTakeOneWalkOfAStream) {
  std::vector<std::unique_ptr<ReceiverRig>> ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(Rank("fp8_per_block", {rank, 2}));
  const PublishedVersion published = Publish(1, PublishMode::kStream);
  std::vector<std::future<ReloadReport>> reloads;
  for (const auto& rank : ranks) reloads.push_back(Take(*rank));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(reloads[i].get().version.step, published.version().step);
    ExpectServes(*ranks[i], 1);
  }
  EXPECT_EQ(ranks[0]->receiver->version(), ranks[1]->receiver->version());
}

// Views of the publisher's bytes, and magnitudes of them in the shapes that receivers read them in.
TEST_P(PublishTest, RanksFindTheirPartsInTensorsThatAreLaidOutOtherwise) {
  RigOptions usual{.layers = 2};
  const testing::Weights weights = testing::RigWeights(usual, 3);
  RigOptions options = usual;
  std::uint64_t step = 4;
  for (const bool shared : {true, false}) {
    options.transforms = shared ? testing::SharedTransforms(2) : testing::ScatteredTransforms();
    const testing::Weights& other =
        others_.emplace_back(shared ? testing::Shared(weights) : testing::Scattered(weights));
    for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
      for (const char* recipe : {"fp8_per_tensor", "fp8_per_channel"}) {
        publisher_.Publish({.lineage = "run", .step = ++step, .mode = mode}, Published(other));
        std::vector<std::unique_ptr<ReceiverRig>> ranks;
        std::vector<std::future<ReloadReport>> reloads;
        options.recipe = usual.recipe = recipe;
        for (int rank = 0; rank < 2; ++rank) {
          options.parallel = {rank, 2};
          ranks.push_back(std::make_unique<ReceiverRig>(options));
          ranks.back()->receiver->SetChannel(GetParam());
          reloads.push_back(Take(*ranks.back()));
        }
        for (int rank = 0; rank < 2; ++rank) {
          const ReloadReport report = reloads[static_cast<std::size_t>(rank)].get();
          EXPECT_EQ(report.bytes, report.bytes_total);
          usual.parallel = {rank, 2};
          EXPECT_THAT(Differences(ranks[static_cast<std::size_t>(rank)]->engine.Served(), ServedSlowly(usual, weights)),
                      IsEmpty())
              << recipe << (shared ? " shared" : " scattered") << " rank " << rank;
        }
      }
    }
  }
}

// One version over all stages, though none of them gets another's bytes.
TEST_P(PublishTest, AStageReceivesAndKeepsItsOwnLayersAlone) {
  constexpr int kStages = 3;
  RigOptions options{.recipe = "fp8_per_channel", .tied = true, .layers = kStages};
  const testing::Weights weights = testing::RigWeights(options, 7);
  const PublishedVersion published = publisher_.Publish({.lineage = "run", .step = 9}, Published(weights));
  std::uint64_t bytes = 0;
  for (int stage = 0; stage < kStages; ++stage) {
    options.parallel = {.pp_rank = stage, .pp_size = kStages};
    ReceiverRig rig(options);
    rig.receiver->SetChannel(GetParam());
    const ReloadReport report = Take(rig).get();
    EXPECT_EQ(report.version, published.version());
    const LoadPlan plan =
        LoadPlan::Build(*testing::RigModel(options), Manifest::OfSpecs("run", 9, testing::SpecsOf(weights)));
    EXPECT_EQ(report.elsewhere, plan.elsewhere().size());
    EXPECT_GT(report.elsewhere, 0U);
    EXPECT_EQ(report.bytes, plan.placed_bytes());
    EXPECT_EQ(report.bytes_total, plan.placed_bytes());
    EXPECT_THAT(report.skipped, IsEmpty());
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
    EXPECT_TRUE(rig.engine.CanariesAreAlive());
    bytes += report.bytes;
  }
  const std::uint64_t embedding = weights.bytes(testing::IndexOf(weights, "model.embed_tokens.weight")).size();
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) all += weights.bytes(i).size();
  EXPECT_EQ(bytes, all + embedding);  // tied: on the first stage and on the last
}

INSTANTIATE_TEST_SUITE_P(OverEveryChannel, PublishTest, ::testing::ValuesIn(testing::ChannelsHere()),
                         [](const auto& channel) { return channel.param; });

}  // namespace
}  // namespace layercast
