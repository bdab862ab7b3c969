// Attention over a cache, against the obvious softmax.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine_side/engine/cpu/kernels/attend.h"
#include "tests/engine_side/engine/cpu/kernels/random_rows.h"

namespace layercast {
namespace {

TEST(Attend, AgreesWithTheObviousSoftmaxAndShowsANaN) {
  std::mt19937 random(4);
  constexpr std::size_t kDim = 20;
  constexpr std::size_t kCount = 37;
  const Activations keys = RandomRows(kCount, kDim, random);
  const Activations values = RandomRows(kCount, kDim, random);
  const Activations query = RandomRows(1, kDim, random);
  std::vector<float> scores;
  std::vector<float> out(Activations::Padded(kDim));
  Attend(query.row(0), {keys.row(0), keys.stride(), kCount}, {values.row(0), values.stride(), kCount}, {.scale = 0.25F},
         Activations::Padded(kDim), scores, out.data());
  std::vector<double> weights(kCount);
  double total = 0.0;
  for (std::size_t j = 0; j < kCount; ++j) {
    double dot = 0.0;
    for (std::size_t c = 0; c < kDim; ++c)
      dot += static_cast<double>(query.row(0)[c]) * static_cast<double>(keys.row(j)[c]);
    total += weights[j] = std::exp(0.25 * dot);
  }
  for (std::size_t c = 0; c < kDim; ++c) {
    double expected = 0.0;
    for (std::size_t j = 0; j < kCount; ++j) expected += weights[j] / total * static_cast<double>(values.row(j)[c]);
    EXPECT_NEAR(static_cast<double>(out[c]), expected, 2e-6);
  }
  Activations poisoned = keys;
  poisoned.row(5)[3] = std::numeric_limits<float>::quiet_NaN();
  Attend(query.row(0), {poisoned.row(0), keys.stride(), kCount}, {values.row(0), values.stride(), kCount},
         {.scale = 0.25F}, Activations::Padded(kDim), scores, out.data());
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(Attend, ASinkTakesItsShareAndHasNoValue) {
  std::mt19937 random(8);
  constexpr std::size_t kDim = 12;
  constexpr std::size_t kCount = 9;
  const Activations keys = RandomRows(kCount, kDim, random);
  const Activations query = RandomRows(1, kDim, random);
  std::vector<float> scores;
  const auto attend = [&](float sink) {
    std::vector<float> out(Activations::Padded(kDim));
    Attend(query.row(0), {keys.row(0), keys.stride(), kCount}, {keys.row(0), keys.stride(), kCount},
           {.scale = 1.0F, .sink = sink}, Activations::Padded(kDim), scores, out.data());
    return out;
  };
  double total = 0.0;
  for (std::size_t j = 0; j < kCount; ++j) {
    double dot = 0.0;
    for (std::size_t c = 0; c < kDim; ++c)
      dot += static_cast<double>(query.row(0)[c]) * static_cast<double>(keys.row(j)[c]);
    total += std::exp(dot);
  }
  const std::vector<float> without = attend(-std::numeric_limits<float>::infinity());
  for (const float sink : {-3.0F, 0.0F, 2.0F, 60.0F}) {  // the last one is larger than any score
    const std::vector<float> out = attend(sink);
    const double share = total / (total + std::exp(static_cast<double>(sink)));
    for (std::size_t c = 0; c < kDim; ++c) {
      EXPECT_NEAR(static_cast<double>(out[c]), share * static_cast<double>(without[c]), 2e-6) << sink;
    }
  }
  EXPECT_TRUE(std::isnan(attend(std::numeric_limits<float>::quiet_NaN())[0]));
}

TEST(Attend, CapsItsScoresAndShowsANaN) {
  std::mt19937 random(6);
  constexpr std::size_t kDim = 12;
  constexpr std::size_t kCount = 9;
  constexpr double kCap = 0.5;
  const Activations keys = RandomRows(kCount, kDim, random);
  const Activations query = RandomRows(1, kDim, random);
  std::vector<float> scores;
  std::vector<float> out(Activations::Padded(kDim));
  const auto attend = [&](const Activations& from) {
    Attend(query.row(0), {from.row(0), from.stride(), kCount}, {keys.row(0), keys.stride(), kCount},
           {.scale = 1.0F, .logit_softcap = static_cast<float>(kCap)}, Activations::Padded(kDim), scores, out.data());
  };
  attend(keys);
  std::vector<double> weights(kCount);
  double total = 0.0;
  for (std::size_t j = 0; j < kCount; ++j) {
    double dot = 0.0;
    for (std::size_t c = 0; c < kDim; ++c)
      dot += static_cast<double>(query.row(0)[c]) * static_cast<double>(keys.row(j)[c]);
    total += weights[j] = std::exp(kCap * std::tanh(dot / kCap));
  }
  for (std::size_t c = 0; c < kDim; ++c) {
    double expected = 0.0;
    for (std::size_t j = 0; j < kCount; ++j) expected += weights[j] / total * static_cast<double>(keys.row(j)[c]);
    EXPECT_NEAR(static_cast<double>(out[c]), expected, 2e-6);
  }
  Activations poisoned = keys;
  poisoned.row(2)[1] = std::numeric_limits<float>::quiet_NaN();
  attend(poisoned);
  EXPECT_TRUE(std::isnan(out[0]));
}

}  // namespace
}  // namespace layercast
