#include "engine_side/engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, -1.0F, 2.0F};

double ExpectedProbability(std::size_t token, double temperature) {
  double sum = 0.0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit) / temperature);
  return std::exp(static_cast<double>(kLogits[token]) / temperature) / sum;
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  const SampledToken sampled = Sample(kLogits, {}, 0);
  EXPECT_EQ(sampled.token, 1);
  EXPECT_NEAR(sampled.logprob, std::log(ExpectedProbability(1, 1.0)), 1e-12);
}

TEST(Sampler, TheLogProbabilityIsThatOfTemperatureOne) {
  const SampledToken sampled = Sample(kLogits, {.temperature = 3.0, .top_k = 2, .seed = 5}, 17);
  const auto token = static_cast<std::size_t>(sampled.token);
  EXPECT_NEAR(sampled.logprob, std::log(ExpectedProbability(token, 1.0)), 1e-12);
}

TEST(Sampler, DependsOnSeedAndIndexAlone) {
  const SamplingParams params = {.temperature = 1.0, .seed = 42};
  std::vector<std::int32_t> first;
  std::vector<std::int32_t> again;
  std::vector<std::int32_t> other_seed;
  for (std::uint64_t i = 0; i < 50; ++i) first.push_back(Sample(kLogits, params, i).token);
  for (std::uint64_t i = 50; i-- > 0;) again.insert(again.begin(), Sample(kLogits, params, i).token);
  for (std::uint64_t i = 0; i < 50; ++i) {
    other_seed.push_back(Sample(kLogits, {.temperature = 1.0, .seed = 43}, i).token);
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other_seed);
}

TEST(Sampler, FollowsTheDistribution) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    std::vector<int> counts(kLogits.size());
    constexpr int kDraws = 40000;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      ++counts[static_cast<std::size_t>(Sample(kLogits, {.temperature = temperature, .seed = 7}, i).token)];
    }
    for (std::size_t token = 0; token < kLogits.size(); ++token) {
      EXPECT_NEAR(counts[token] / double{kDraws}, ExpectedProbability(token, temperature), 0.012);  // about 5 sigma
    }
  }
}

TEST(Sampler, TopKAndTopPKeepTheMostLikely) {
  std::map<std::int32_t, int> top_k;
  std::map<std::int32_t, int> top_p;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ++top_k[Sample(kLogits, {.temperature = 1.0, .top_k = 3, .seed = 1}, i).token];
    ++top_p[Sample(kLogits, {.temperature = 1.0, .top_p = 0.7, .seed = 1}, i).token];  // 0.4 and 0.4 reach it
  }
  EXPECT_THAT(top_k, testing::UnorderedElementsAre(testing::Key(1), testing::Key(2), testing::Key(4)));
  EXPECT_THAT(top_p, testing::UnorderedElementsAre(testing::Key(1), testing::Key(4)));
  EXPECT_EQ(Sample(kLogits, {.temperature = 1.0, .top_p = 1e-9, .seed = 1}, 3).token, 1);
}

TEST(Sampler, RefusesBrokenLogitsAndParameters) {
  std::vector<float> broken = kLogits;
  broken[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT([&] { Sample(broken, {}, 0); }, testing::ThrowsMessage<Error>(testing::HasSubstr("logit of token 3")));
  const std::vector<float> none(3, -std::numeric_limits<float>::infinity());
  EXPECT_THAT([&] { Sample(none, {}, 0); }, testing::ThrowsMessage<Error>(testing::HasSubstr("logit of every token")));
  for (const SamplingParams& params :
       {SamplingParams{.temperature = -1.0}, SamplingParams{.temperature = std::nan("")}, SamplingParams{.top_p = 0.0},
        SamplingParams{.top_p = 1.5}, SamplingParams{.top_k = -1}}) {
    EXPECT_THROW(CheckSamplingParams(params), Error);
  }
  EXPECT_NO_THROW(CheckSamplingParams({.temperature = 0.7, .top_p = 0.9, .top_k = 50, .seed = 1}));
}

TEST(Sampler, AMaskedTokenIsNeverPicked) {
  std::vector<float> masked = kLogits;
  masked[1] = masked[4] = -std::numeric_limits<float>::infinity();
  for (std::uint64_t i = 0; i < 500; ++i) {
    EXPECT_THAT(Sample(masked, {.temperature = 1.0, .seed = 2}, i).token, testing::AnyOf(0, 2, 3));
  }
}

}  // namespace
}  // namespace layercast
