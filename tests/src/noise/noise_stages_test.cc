// The schedule, held against QeRL's numbers.
#include "layercast/noise/noise_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/noise/fnv.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;

TEST(NoiseStages, FallExponentiallyAfterAFirstStageWithout) {
  const NoiseStages stages{.steps = 100};
  for (const std::uint64_t step : {0U, 9U}) EXPECT_FALSE(stages.At("run", step)) << step;
  EXPECT_FLOAT_EQ(stages.At("run", 10)->sigma, 1e-2F);
  EXPECT_FLOAT_EQ(stages.At("run", 19)->sigma, 1e-2F);
  EXPECT_FLOAT_EQ(stages.At("run", 20)->sigma, 5.6234133e-3F);  // 1e-2 * 1e-2^(1/8)
  EXPECT_FLOAT_EQ(stages.At("run", 50)->sigma, 1e-3F);
  EXPECT_FLOAT_EQ(stages.At("run", 99)->sigma, 1e-4F);
  EXPECT_FLOAT_EQ(stages.At("run", 1000)->sigma, 1e-4F);  // a run that goes on longer stays in the last stage
}

TEST(NoiseStages, TwoStagesHaveTheirFirstSigmaInTheSecond) {
  const NoiseStages stages{.start = 0.5, .end = 0.1, .stages = 2, .steps = 10};
  EXPECT_FALSE(stages.At("run", 4));
  EXPECT_FLOAT_EQ(stages.At("run", 5)->sigma, 0.5F);
}

TEST(NoiseStages, EachVersionOfEachRunHasASeedOfItsOwn) {
  const NoiseStages stages{.steps = 10, .run_seed = 3};
  EXPECT_EQ(stages.At("run", 5)->seed, Fnv1a("run@5#3"));
  EXPECT_EQ(NoiseSeed("run", 5, 3), Fnv1a("run@5#3"));
  EXPECT_NE(NoiseSeed("run", 5, 3), NoiseSeed("run", 6, 3));
}

TEST(NoiseStages, NumbersThatMakeNoScheduleAreRefused) {
  const auto refusal = [](const NoiseStages& stages) {
    return ErrorOf([&] { static_cast<void>(stages.At("run", 1)); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(refusal({}), HasSubstr("expected the run's number of steps, got 0"));
  EXPECT_THAT(refusal({.stages = 1, .steps = 1}), HasSubstr("expected 2 stages or more, got 1"));
  EXPECT_THAT(refusal({.start = 0, .steps = 1}), HasSubstr("above 0"));
  EXPECT_THAT(refusal({.end = 2, .steps = 1}), HasSubstr("at most 1"));
}

TEST(NoiseUse, IsCalledByItsNames) {
  EXPECT_EQ(NoiseUseNamed("per-engine"), NoiseUse::kPerEngine);
  EXPECT_THAT(ErrorOf([] { NoiseUseNamed("on"); }, ErrorCode::kInvalidArgument),
              HasSubstr("expected shared, per-engine or off, got 'on'"));
}

}  // namespace
}  // namespace layercast
