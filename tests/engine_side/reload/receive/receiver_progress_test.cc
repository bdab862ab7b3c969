// What a receiver tells of its progress, by every way in and under every commit policy. receiver_publisher_test.cc has
// the ways from publishers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine_side/reload/sources/progress_teller.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LazySource;
using testing::ReceiverRig;
using testing::SpecsOf;
using testing::TensorsOf;
using testing::Weights;
using testing::WriteCheckpoint;

// Checks that nothing goes back, and that in the end everything is there, as the report says.
void ExpectWhole(const std::vector<ReloadProgress>& told, const ReloadReport& report, const std::string& way) {
  ASSERT_FALSE(told.empty()) << way;
  for (std::size_t i = 1; i < told.size(); ++i) {
    EXPECT_GE(told[i].bytes, told[i - 1].bytes) << way;
    EXPECT_GE(told[i].layers, told[i - 1].layers) << way;
    EXPECT_LE(told[i].bytes, report.bytes_total) << way;
    EXPECT_NE(told[i], told[i - 1]) << way;
    EXPECT_EQ(told[i].bytes_total, told[i].stage == "plan" ? 0 : report.bytes_total) << way;
  }
  EXPECT_GT(report.bytes, 0U) << way;
  EXPECT_EQ(told.back().bytes, report.bytes) << way;
  EXPECT_EQ(told.back().layers, report.layers) << way;
  EXPECT_EQ(told.back().layers_total, report.layers) << way;
  EXPECT_EQ(told.back().stage, "verify") << way;
  EXPECT_EQ(told.back().version, report.version) << way;
}

TEST(ReceiverProgress, EveryWayInTellsOfItsBytesUntilAllAreThere) {
  ReceiverRig rig;
  std::vector<ReloadProgress> told;
  rig.on_progress = [&](const ReloadProgress& progress) { told.push_back(progress); };
  const Weights weights = rig.Version(1);
  const TempFolder folder;
  WriteCheckpoint(folder, weights);
  const auto takes = [&](const char* way, const std::function<ReloadReport()>& load) {
    told.clear();
    ExpectWhole(told, load(), way);
  };
  takes("path", [&] { return rig.receiver->ReloadWeights(FromPath(folder.path())); });
  takes("eager", [&] { return rig.receiver->ReloadWeights(EagerSource(weights)); });
  takes("lazy", [&] { return rig.receiver->ReloadWeights(LazySource(weights)); });
  takes("dummy", [&] { return rig.receiver->ReloadWeights(FromDummy(3)); });
  takes("call by call", [&] {
    rig.receiver->record_metadata_for_reloading();
    rig.receiver->initialize_layerwise_reload(SpecsOf(weights));
    for (const NamedTensor& tensor : TensorsOf(weights)) rig.receiver->load_weights(*MakeWeightsIterator({tensor}));
    return rig.receiver->finalize_layerwise_processing();
  });
}

TEST(ReceiverProgress, PoliciesThatReceiveWhileTheyCommitTellItThen) {
  for (const CommitPolicy policy : testing::kLayerwise) {
    ReceiverRig rig({.recipe = "fp8_per_channel"}, true, false, policy);
    std::vector<ReloadProgress> told;
    rig.on_progress = [&](const ReloadProgress& progress) { told.push_back(progress); };
    const Weights weights = rig.Version(1);
    rig.receiver->Stage(EagerSource(weights));
    for (const ReloadProgress& progress : told) EXPECT_EQ(progress.bytes, 0U);
    rig.receiver->Commit();
    rig.receiver->VerifyServed();
    ExpectWhole(told, rig.receiver->report(), std::string(CommitPolicyName(policy)));
  }
}

// For the last of four ranks, no byte of the vocabulary ever comes.
TEST(ReceiverProgress, LayersOfOnlyPaddingAreThereInTheEnd) {
  ReceiverRig rig({.parallel = {3, 4}});
  std::vector<ReloadProgress> told;
  rig.on_progress = [&](const ReloadProgress& progress) { told.push_back(progress); };
  const Weights weights = rig.Version(1);
  const ReloadReport report = rig.receiver->ReloadWeights(EagerSource(weights));
  ExpectWhole(told, report, "padding");
}

TEST(ReceiverProgress, LayersThatAPartialVersionLeavesOutDoNotCount) {
  ReceiverRig rig;
  const Weights weights = rig.Version(1);
  rig.receiver->ReloadWeights(EagerSource(weights));
  std::vector<ReloadProgress> told;
  rig.on_progress = [&](const ReloadProgress& progress) { told.push_back(progress); };
  std::vector<NamedTensor> norm;
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights.spec(i).name != "model.norm.weight") continue;
    norm.push_back(weights.at(i));
    specs.push_back(weights.spec(i));
  }
  ReloadSource source = FromIterator(MakeWeightsIterator(norm), specs);
  source.partial = true;
  const ReloadReport report = rig.receiver->ReloadWeights(std::move(source));
  EXPECT_EQ(report.layers, 1U);
  ExpectWhole(told, report, "partial");
}

TEST(ReceiverProgress, WhatTheCallbackThrowsIsNoMatterOfTheReload) {
  const std::function<void()> throws[] = {[] { throw std::runtime_error("a broken bar"); }, [] { throw 7; }};
  for (const auto& fail : throws) {
    ReceiverRig rig;
    int told = 0;
    rig.on_progress = [&](const ReloadProgress&) {
      ++told;
      fail();
    };
    const Weights weights = rig.Version(1);
    rig.receiver->ReloadWeights(EagerSource(weights));
    EXPECT_EQ(told, 1);
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
    rig.receiver->ReloadWeights(EagerSource(weights));
    EXPECT_EQ(told, 2);  // the next reload is told of again
  }
}

TEST(ReceiverProgress, TheCallbackMayGiveTheReloadUpAndNothingElse) {
  ReceiverRig rig;
  const Weights weights = rig.Version(1);
  rig.on_progress = [&](const ReloadProgress& progress) {
    EXPECT_THAT(ErrorOf([&] { rig.receiver->Abort(); }, ErrorCode::kFailedPrecondition),
                HasSubstr("Abort was called during"));
    if (progress.bytes > 0) rig.receiver->Cancel(rig.receiver->attempt());
  };
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(weights)); }, ErrorCode::kCancelled),
              HasSubstr("given up"));
}

// However many pieces come, and however quickly: a hundred times, and ten times a second.
TEST(ReceiverProgress, ItIsToldOncePerHundredthAndPeriod) {
  std::vector<ReloadProgress> told;
  ProgressTeller teller([&](const ReloadProgress& progress) { told.push_back(progress); });
  const auto begin = std::chrono::steady_clock::now();
  constexpr std::uint64_t kPieces = 1'000'000;
  teller.Begin();
  teller.Expect(kPieces, 1);
  for (std::uint64_t i = 1; i <= kPieces; ++i) teller.Came(i, 0);
  teller.Came(kPieces, 1);
  const auto periods = (std::chrono::steady_clock::now() - begin) / ProgressTeller::kPeriod;
  EXPECT_GE(told.size(), 101U);
  EXPECT_LE(told.size(), 102U + static_cast<std::size_t>(periods) + 1);
  EXPECT_EQ(told.back().bytes, kPieces);
  EXPECT_EQ(told.back().layers, 1U);
}

}  // namespace
}  // namespace layercast
