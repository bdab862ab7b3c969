// A version that several publishers have between them: whatever way a trainer is sharded and an engine is, the engine
// serves what it would of one publisher, over every channel, and receives no byte more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "tests/support/channels_here.h"
#include "tests/support/reload/other_layouts.h"
#include "tests/support/reload/sharded_trainer.h"

namespace layercast {
namespace {

using testing::ColumnsAndRows;
using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::RigOptions;
using testing::RowsOf;
using testing::ShardCase;
using testing::ShardCases;
using testing::ShardedTrainer;
using testing::ShardLayout;

class PublishedPartsTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  const ShardCase& layout() const { return ShardCases()[GetParam()]; }

  void ExpectTaken(const RigOptions& options, const std::string& channel) {
    const testing::Weights weights = testing::RigWeights(options, 3);
    trainer_.Publish(weights, layout().layout);
    ReceiverRig rig(options);
    rig.receiver->SetChannel(channel);
    const ReloadReport report = rig.receiver->ReloadWeights(FromPublishers(trainer_.endpoints()));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty()) << options.recipe << channel;
    EXPECT_TRUE(rig.engine.CanariesAreAlive());
    const LoadPlan whole =
        LoadPlan::Build(*testing::RigModel(options), Manifest::OfSpecs("run", 1, testing::SpecsOf(weights)));
    EXPECT_EQ(report.bytes, whole.placed_bytes());  // what it keeps, and nothing else
    EXPECT_EQ(report.bytes_total, whole.placed_bytes());
    EXPECT_THAT(report.out_of_order, IsEmpty());
    ASSERT_EQ(report.publishers.size(), static_cast<std::size_t>(layout().ranks));
    std::uint64_t bytes = 0;
    for (const PublisherShare& share : report.publishers) bytes += share.bytes;
    EXPECT_EQ(bytes, report.bytes);
    EXPECT_EQ(report.publishers.front().endpoint, trainer_.endpoints().back());
  }

 private:
  ShardedTrainer trainer_{layout().ranks};
};

TEST_P(PublishedPartsTest, AreServedAsTheWhole) {
  const std::vector<std::string> channels = testing::ChannelsHere();
  std::size_t next = 0;
  for (const std::string& recipe :
       testing::kUnderSanitizer
           ? std::vector<std::string>{"fp8_per_channel"}
           : std::vector<std::string>{"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    for (const ParallelConfig& parallel : {ParallelConfig{}, ParallelConfig{0, 2}, ParallelConfig{1, 2}}) {
      ExpectTaken({.recipe = recipe, .parallel = parallel}, channels[next++ % channels.size()]);
    }
  }
}

TEST_P(PublishedPartsTest, OfExpertsAreServedAsTheWholeByRanksThatHaveAPartOfEachOrSomeWhole) {
  using Form = testing::ExpertForm;
  for (const Form form : testing::kUnderSanitizer
                             ? std::vector<Form>{Form::kStacked}
                             : std::vector<Form>{Form::kPerExpert, Form::kStacked, Form::kTransposed}) {
    for (const bool expert_parallel : {false, true}) {
      ParallelConfig parallel{.tp_rank = 1, .tp_size = 2};
      if (expert_parallel) parallel.SpreadExperts();
      ExpectTaken({.recipe = "fp8_per_channel", .parallel = parallel, .experts = form}, "inproc");
      ExpectTaken({.recipe = "fp8_per_tensor", .parallel = parallel, .experts = form}, "zmq");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InEveryLayout, PublishedPartsTest, ::testing::Range(std::size_t{0}, ShardCases().size()),
                         [](const auto& index) { return std::string(ShardCases()[index.param].name); });

// Ranks that hold some tensors whole, of which some are read in another shape.
TEST(PublishedParts, WhatIsReadInAnotherShapeIsServedWhereOneRankHasAllOfIt) {
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    for (const ParallelConfig& parallel : {ParallelConfig{}, ParallelConfig{1, 2}}) {
      RigOptions options{.recipe = recipe, .parallel = parallel};
      const testing::ServedBytes expected = ServedSlowly(options, testing::RigWeights(options, 3));
      const auto expect_taken = [&](SourceTransforms transforms, const testing::Weights& weights) {
        options.transforms = std::move(transforms);
        for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
          if (mode == PublishMode::kStream && parallel.tp_size > 1) continue;  // it would wait for the other rank
          ShardedTrainer trainer(2);
          trainer.Publish(weights, testing::WholeByTurns, mode);
          ReceiverRig rig(options);
          rig.receiver->ReloadWeights(FromPublishers(trainer.endpoints()));
          EXPECT_THAT(Differences(rig.engine.Served(), expected), IsEmpty()) << recipe << parallel.tp_rank;
        }
      };
      const testing::Weights usual = testing::RigWeights(options, 3);
      expect_taken(testing::ScatteredTransforms(), testing::Scattered(usual));
      expect_taken(testing::SharedTransforms(options.layers), testing::Shared(usual));
    }
  }
}

TEST(PublishedParts, OneVersionAfterAnotherAndThenAWholeOneOfTheSameTensors) {
  const RigOptions options{.recipe = "fp8_per_channel"};
  ReceiverRig rig(options);
  for (const std::uint32_t seed : {1U, 2U}) {
    const testing::Weights weights = rig.Version(seed);
    const ShardedTrainer trainer(weights, seed == 1 ? RowsOf : ShardLayout(ColumnsAndRows), 2);
    rig.receiver->ReloadWeights(FromPublishers(trainer.endpoints()));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
  }
  const testing::Weights weights = rig.Version(3);
  rig.receiver->ReloadWeights(testing::EagerSource(weights));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
}

TEST(PublishedParts, WhatIsWrongIsNamedAndChangesNothing) {
  ReceiverRig rig;
  const testing::Weights weights = rig.Version(1);
  rig.receiver->ReloadWeights(testing::EagerSource(weights));
  const ShardedTrainer trainer(rig.Version(2), RowsOf, 3);
  const std::vector<std::string> all = trainer.endpoints();
  const auto error_of = [&](std::vector<std::string> endpoints) {
    return ErrorOf([&] { rig.receiver->ReloadWeights(FromPublishers(std::move(endpoints))); });
  };
  EXPECT_THAT(error_of({all[0]}), HasSubstr("expected publishers of all of them, got 1 without ranks 0, 1"));
  EXPECT_THAT(error_of({all[0], all[1], all[1]}), HasSubstr("expected each part once"));
  EXPECT_THAT(error_of({}), HasSubstr("got none"));
  const ShardLayout twice = [](const TensorSpec& spec, int /*rank*/, int /*ranks*/) {
    return std::vector{Box::Whole(spec.shape)};
  };
  const ShardedTrainer overlapping(rig.Version(2), twice, 2);
  EXPECT_THAT(error_of(overlapping.endpoints()), HasSubstr("expected every element of one of them"));
  const ShardLayout holed = [](const TensorSpec& spec, int rank, int /*ranks*/) { return RowsOf(spec, rank, 3); };
  const ShardedTrainer with_hole(rig.Version(2), holed, 2);
  EXPECT_THAT(error_of(with_hole.endpoints()), HasSubstr("no publisher has"));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
}

TEST(PublishedParts, OfTwoRunsUnderOneNameAreRefusedBeforeAByteMoves) {
  for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
    ReceiverRig rig;
    const testing::Weights weights = rig.Version(1);
    rig.receiver->ReloadWeights(testing::EagerSource(weights));
    ShardedTrainer trainer(2);
    const auto reload = [&] { return rig.receiver->ReloadWeights(FromPublishers(trainer.endpoints())); };
    for (const std::string first : {"job-7", ""}) {
      trainer.run_of_rank = [&](int rank) { return rank == 0 ? first : "job-8"; };
      trainer.Publish(rig.Version(2), RowsOf, mode);
      const std::string refused = ErrorOf([&] { reload(); }, ErrorCode::kFailedPrecondition);
      for (const std::string& endpoint : trainer.endpoints()) EXPECT_THAT(refused, HasSubstr(endpoint));
      EXPECT_THAT(refused, HasSubstr("of run 'job-8'"));
      EXPECT_THAT(refused, HasSubstr(first.empty() ? "of a run without a name" : "of run 'job-7'"));
      EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
    }
    trainer.run_of_rank = [](int) { return "job-8"; };
    trainer.Publish(rig.Version(2), RowsOf, mode);
    EXPECT_EQ(reload().run_warning, "");
  }
}

TEST(PublishedParts, ThatAllNameNoRunAreTakenAndTheReportSaysSo) {
  ReceiverRig rig;
  const testing::Weights weights = rig.Version(2);
  const ShardedTrainer unnamed(weights, RowsOf, 2);
  const ReloadReport report = rig.receiver->ReloadWeights(FromPublishers(unnamed.endpoints()));
  EXPECT_THAT(report.run_warning, HasSubstr("no publisher names its run"));
  EXPECT_THAT(report.ToJson(), HasSubstr("\"run_warning\":\"no publisher names its run"));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
  const ShardedTrainer alone(rig.Version(3), RowsOf, 1);
  const ReloadReport of_one = rig.receiver->ReloadWeights(FromPublishers(alone.endpoints()));
  EXPECT_EQ(of_one.run_warning, "");
  EXPECT_THAT(of_one.ToJson(), HasSubstr("\"run_warning\":null"));
}

TEST(PublishedParts, OneOfThemThatIsGoneIsNamed) {
  ReceiverRig rig;
  ShardedTrainer trainer(rig.Version(2), RowsOf, 2);
  const std::vector<std::string> all = trainer.endpoints();
  rig.receiver->Stage(FromPublishers(all));
  rig.receiver->Abort();
  trainer.End(1);
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromPublishers(all)); }), HasSubstr(all[0]));
  EXPECT_FALSE(rig.receiver->version());
}

}  // namespace
}  // namespace layercast
