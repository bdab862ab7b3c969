// Norms, rotations, gates and caps, against their formulas.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "src/tensor/element.h"
#include "tests/engine_side/engine/cpu/kernels/random_rows.h"

namespace layercast {
namespace {

TEST(RowKernels, AClampedGateIsItsFormulaAndShowsANaN) {
  constexpr float kAlpha = 1.702F;
  constexpr float kLimit = 7.0F;
  const std::vector<float> gates = {-200.0F, -7.5F, -1.0F, 0.0F, 0.5F, 6.9F, 7.5F, 200.0F, 3.0F};
  const std::vector<float> ups = {2.0F, -9.0F, 0.5F, 1.0F, -7.5F, 8.0F, 0.0F, -1.0F, 100.0F};
  std::vector<float> out = gates;
  ClampedGateMultiply(kAlpha, kLimit, out, ups, DType::kF32);
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const double g = std::min<double>(gates[i], kLimit);
    const double u = std::clamp<double>(ups[i], -kLimit, kLimit);
    EXPECT_NEAR(static_cast<double>(out[i]), (u + 1.0) * g / (1.0 + std::exp(-static_cast<double>(kAlpha) * g)), 1e-5)
        << gates[i] << " " << ups[i];
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const bool in_gate : {true, false}) {
    std::vector<float> one = {in_gate ? nan : 1.0F};
    ClampedGateMultiply(kAlpha, kLimit, one, std::vector<float>{in_gate ? 1.0F : nan}, DType::kF32);
    EXPECT_TRUE(std::isnan(one[0]));
  }
}

TEST(RowKernels, ANormsPartsAreNormalizedByTheSumOfTheirSquares) {
  constexpr std::size_t kSize = 37, kFirst = 20;
  std::mt19937 random(9);
  const Activations x = RandomRows(2, kSize, random);
  const std::span<const float> row(x.row(0), kSize);
  const std::span<const float> weight(x.row(1), kSize);
  double squares = 0;
  for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
  const float mean = (SumOfSquares(row.first(kFirst)) + SumOfSquares(row.subspan(kFirst))) / static_cast<float>(kSize);
  for (const NormStyle style : {NormStyle::kWeight, NormStyle::kFp32Weight}) {
    std::vector<float> got(kSize);
    NormalizeBy(mean, row.first(kFirst), weight.first(kFirst), 1e-5F, style, DType::kF32, std::span(got).first(kFirst));
    NormalizeBy(mean, row.subspan(kFirst), weight.subspan(kFirst), 1e-5F, style, DType::kF32,
                std::span(got).subspan(kFirst));
    for (std::size_t i = 0; i < kSize; ++i) {
      const double norm = static_cast<double>(row[i]) / std::sqrt(squares / kSize + 1e-5);
      EXPECT_NEAR(static_cast<double>(got[i]), norm * static_cast<double>(weight[i]), 1e-5);
    }
  }
}

TEST(RowKernels, NormalizeRotateAndGateAsTheirFormulasSay) {
  std::mt19937 random(5);
  constexpr std::size_t kDim = 22;
  const Activations x = RandomRows(3, kDim, random);
  const std::span<const float> row(x.row(0), kDim);
  const std::span<const float> weight(x.row(1), kDim);
  std::vector<float> y(kDim);
  RmsNorm(row, weight, 1e-6F, NormStyle::kWeight, DType::kF32, y);
  double squares = 0.0;
  for (const float v : row) squares += static_cast<double>(v) * static_cast<double>(v);
  const double factor = 1.0 / std::sqrt(squares / kDim + 1e-6);
  std::vector<float> gate(row.begin(), row.end());
  gate[0] = -200.0F;
  gate[1] = 200.0F;
  const std::vector<float> before = gate;
  GateMultiply(Activation::kSilu, gate, weight, DType::kF32);
  for (std::size_t i = 0; i < kDim; ++i) {
    const double v = row[i];
    EXPECT_NEAR(static_cast<double>(y[i]), v * factor * static_cast<double>(weight[i]), 1e-5);
    const double g = before[i];
    EXPECT_NEAR(static_cast<double>(gate[i]), g / (1.0 + std::exp(-g)) * static_cast<double>(weight[i]), 1e-4);
  }
  std::vector<float> head(row.begin(), row.end());
  std::vector<float> cos(kDim / 2, std::cos(0.3F));
  std::vector<float> sin(kDim / 2, std::sin(0.3F));
  Rotate(head, cos, sin, DType::kF32);
  EXPECT_NEAR(head[2], row[2] * cos[2] - row[13] * sin[2], 1e-6F);
  EXPECT_NEAR(head[13], row[13] * cos[2] + row[2] * sin[2], 1e-6F);
}

TEST(RowKernels, GeluAndCapsAreTheirFormulas) {
  const std::vector<float> inputs = {-200.0F, -6.0F, -3.0F, -1.0F, -0.1F, 0.0F, 1e-4F, 0.5F, 2.0F, 5.0F, 200.0F};
  const std::vector<float> ones(inputs.size(), 1.0F);
  std::vector<float> gelu = inputs;
  std::vector<float> gelu_tanh = inputs;
  std::vector<float> capped = inputs;
  GateMultiply(Activation::kGelu, gelu, ones, DType::kF32);
  GateMultiply(Activation::kGeluTanh, gelu_tanh, ones, DType::kF32);
  SoftCap(30.0F, capped);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double x = inputs[i];
    EXPECT_NEAR(static_cast<double>(gelu[i]), x / 2.0 * (1.0 + std::erf(x / std::sqrt(2.0))), 1e-6) << x;
    const double inner = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(static_cast<double>(gelu_tanh[i]), x / 2.0 * (1.0 + std::tanh(inner)), 2e-6) << x;
    EXPECT_NEAR(static_cast<double>(capped[i]), 30.0 * std::tanh(x / 30.0), 1e-5) << x;
  }
  std::vector<float> nan = {std::numeric_limits<float>::quiet_NaN()};
  SoftCap(30.0F, nan);
  EXPECT_TRUE(std::isnan(nan[0]));
}

class NormThatRoundsOnce : public ::testing::TestWithParam<NormStyle> {};

TEST_P(NormThatRoundsOnce, IsTheExactNormRounded) {
  const std::vector<float> x = {1.0F, 2.0F, -3.0F, 0.5F};
  const std::vector<float> factors = {1.25F, 0.75F, 1.0F, 2.0F};  // the weight, or one plus it
  std::vector<float> y(x.size());
  RmsNorm(x, factors, 1e-6F, GetParam(), DType::kBF16, y);
  double squares = 0.0;
  for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = static_cast<double>(x[i]) / std::sqrt(squares / 4.0 + 1e-6) * static_cast<double>(factors[i]);
    std::vector<float> rounded = {static_cast<float>(exact)};
    RoundTo(DType::kBF16, rounded);
    EXPECT_EQ(y[i], rounded[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, NormThatRoundsOnce,
                         ::testing::Values(NormStyle::kFp32Weight, NormStyle::kOnePlusWeight));

}  // namespace
}  // namespace layercast
