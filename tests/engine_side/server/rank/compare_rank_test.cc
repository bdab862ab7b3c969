// A rank compares what it serves with a cold load, until it is told to stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>

#include "engine_side/server/rank/rank_export.h"
#include "tests/support/error_of.h"
#include "tests/support/reload/receiver_rig.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;

class CompareRankTest : public ::testing::Test {
 protected:
  CompareRankTest() {
    rig_.receiver->ReloadWeights(EagerSource(rig_.Version(1)));
    WriteCheckpoint(folder_, rig_.Version(1));
  }
  nlohmann::ordered_json Compare(const std::stop_token& stop) {
    return CompareRank(*rig_.receiver, RigModel(rig_.options), rig_.options.parallel, {rig_.options.recipe},
                       {.path = folder_.path()}, stop);
  }

  ReceiverRig rig_;
  TempFolder folder_;
};

TEST_F(CompareRankTest, FindsNoDifferenceToWhatWasLoaded) {
  const auto compared = Compare({});
  EXPECT_EQ(compared["tensors"], rig_.receiver->captured().buffers().size());
  EXPECT_TRUE(compared["differences"].empty()) << compared;
}

TEST_F(CompareRankTest, DrawsTheNoiseOfTheServedVersionAgain) {
  const Weights weights = rig_.Version(1);
  ReloadSource source = EagerSource(weights);
  source.noise = Noise{.sigma = 0.01F, .seed = 5};
  rig_.receiver->ReloadWeights(std::move(source));
  const auto compared = Compare({});
  EXPECT_TRUE(compared["differences"].empty()) << compared;
  EXPECT_EQ(compared["noise"]["seed"], 5);
}

TEST_F(CompareRankTest, EndsWhenItIsToldTo) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(ErrorOf([&] { Compare(stop.get_token()); }, ErrorCode::kCancelled), HasSubstr("given up"));
}

}  // namespace
}  // namespace layercast::testing
