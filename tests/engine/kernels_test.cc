#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "engine_side/engine/attend.h"
#include "engine_side/engine/linear.h"
#include "engine_side/engine/row_kernels.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

// Finite values of like size.
std::vector<std::byte> RandomBits(DType dtype, std::size_t count, std::mt19937& random) {
  const auto element_bits = static_cast<std::size_t>(BitsPerElement(dtype));
  std::vector<std::byte> bytes(count * element_bits / 8);
  for (std::size_t i = 0; i < bytes.size() * 8 / element_bits; ++i) {
    const float value = std::normal_distribution<float>(0.0F, 1.0F)(random);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (dtype == DType::kF32) std::memcpy(bytes.data() + i * 4, &bits, 4);
    if (dtype == DType::kBF16) std::memcpy(bytes.data() + i * 2, reinterpret_cast<const char*>(&bits) + 2, 2);
    if (dtype == DType::kF16) {
      const auto half = static_cast<std::uint16_t>((random() & 0x8000) | (0x3000 + random() % 0x0c00));
      std::memcpy(bytes.data() + i * 2, &half, 2);
    }
    if (dtype == DType::kF8E4M3) bytes[i] = static_cast<std::byte>((random() & 0x80) | (random() % 0x7f));
    if (dtype == DType::kI8) bytes[i] = static_cast<std::byte>(random());
    if (dtype == DType::kF4) bytes[i / 2] = static_cast<std::byte>(random());
  }
  return bytes;
}

struct Format {
  DType dtype = DType::kF32;
  DType scale = DType::kF32;
  std::size_t scale_rows = 0, scale_cols = 0;  // elements of one scale; 0: no scales
  bool global = false;
  std::size_t column_unit = 1;
};
constexpr std::size_t kAll = 1000;
const std::vector<Format> kFormats = {
    {.dtype = DType::kF32},
    {.dtype = DType::kBF16},
    {.dtype = DType::kF16},
    {.dtype = DType::kF8E4M3, .scale_rows = kAll, .scale_cols = kAll},
    {.dtype = DType::kF8E4M3, .scale_rows = 1, .scale_cols = kAll},
    {.dtype = DType::kF8E4M3, .scale_rows = 128, .scale_cols = 128},
    {.dtype = DType::kF8E4M3, .scale = DType::kF8E8M0, .scale_rows = 1, .scale_cols = 32, .column_unit = 32},
    {.dtype = DType::kF4,
     .scale = DType::kF8E4M3,
     .scale_rows = 1,
     .scale_cols = 16,
     .global = true,
     .column_unit = 16},
    {.dtype = DType::kI8, .scale_rows = 1, .scale_cols = kAll},
};

struct TestWeight {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  float global = 0.37F;
  WeightView view;

  // The obvious element.
  float At(std::size_t row, std::size_t col) const {
    const std::size_t index = row * view.cols + col;
    const auto value =
        view.dtype == DType::kI8
            ? static_cast<float>(static_cast<std::int8_t>(values[index]))
            : static_cast<float>(ElementValue(view.dtype, values.data(), static_cast<std::int64_t>(index)));
    if (view.scale.scales == nullptr) return value;
    const std::size_t per_row = (view.cols + view.scale.cols - 1) / view.scale.cols;
    const std::size_t block = row / view.scale.rows * per_row + col / view.scale.cols;
    const auto scale =
        static_cast<float>(ElementValue(view.scale.dtype, scales.data(), static_cast<std::int64_t>(block)));
    return value * (scale * (view.scale.global == nullptr ? 1.0F : global));
  }
};

std::unique_ptr<TestWeight> MakeWeight(const Format& format, std::size_t rows, std::size_t cols, std::mt19937& random) {
  auto weight = std::make_unique<TestWeight>();
  weight->values = RandomBits(format.dtype, rows * cols, random);
  weight->view = {weight->values.data(), format.dtype, rows, cols, {}};
  if (format.scale_rows == 0) return weight;
  const std::size_t count = ((rows - 1) / format.scale_rows + 1) * ((cols - 1) / format.scale_cols + 1);
  for (std::size_t i = 0; i < count; ++i) {
    if (format.scale == DType::kF8E8M0) {
      weight->scales.push_back(static_cast<std::byte>(120 + random() % 10));
    } else {
      const std::vector<std::byte> scale = RandomBits(format.scale, 1, random);
      weight->scales.insert(weight->scales.end(), scale.begin(), scale.end());
    }
  }
  weight->view.scale = {weight->scales.data(), format.scale, format.scale_rows, format.scale_cols,
                        format.global ? reinterpret_cast<const std::byte*>(&weight->global) : nullptr};
  return weight;
}

Activations RandomRows(std::size_t rows, std::size_t cols, std::mt19937& random) {
  Activations x(rows, cols);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) x.row(r)[c] = std::normal_distribution<float>(0.0F, 1.0F)(random);
  }
  return x;
}

TEST(Linear, AgreesWithTheObviousSum) {
  std::mt19937 random(1);
  for (const Format& format : kFormats) {
    for (const auto& [rows, some] : std::vector<std::pair<std::size_t, std::size_t>>{{1, 1}, {5, 20}, {130, 150}}) {
      const std::size_t cols = (some + format.column_unit - 1) / format.column_unit * format.column_unit;
      const std::unique_ptr<TestWeight> weight = MakeWeight(format, rows, cols, random);
      const Activations x = RandomRows(6, cols, random);
      Activations y(6, rows);
      Multiply(x, weight->view, y);
      for (std::size_t t = 0; t < 6; ++t) {
        for (std::size_t r = 0; r < rows; ++r) {
          double sum = 0.0;
          double magnitude = 0.0;
          for (std::size_t c = 0; c < cols; ++c) {
            const double product = static_cast<double>(x.row(t)[c]) * static_cast<double>(weight->At(r, c));
            sum += product;
            magnitude += std::fabs(product);
          }
          ASSERT_NEAR(static_cast<double>(y.row(t)[r]), sum, 1e-6 * magnitude) << Name(format.dtype) << " " << cols;
        }
      }
    }
  }
}

TEST(Linear, GivesATokenTheSameBitsInEveryBatch) {
  std::mt19937 random(2);
  for (const Format& format : kFormats) {
    const std::size_t cols = format.column_unit == 1 ? 172 : 192;
    const std::unique_ptr<TestWeight> weight = MakeWeight(format, 70, cols, random);
    const Activations x = RandomRows(11, cols, random);
    Activations together(11, 70);
    Multiply(x, weight->view, together);
    for (std::size_t t = 0; t < 11; ++t) {
      Activations alone(1, cols);
      std::copy_n(x.row(t), x.stride(), alone.row(0));
      Activations y(1, 70);
      Multiply(alone, weight->view, y);
      ASSERT_EQ(std::memcmp(y.row(0), together.row(t), 70 * sizeof(float)), 0) << t;
    }
  }
}

TEST(ReadRow, IsValueTimesScaleOnEveryInstructionSet) {
  std::mt19937 random(7);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const Format& format : kFormats) {
      const std::size_t cols = format.column_unit == 1 ? 150 : 160;
      const std::unique_ptr<TestWeight> weight = MakeWeight(format, 130, cols, random);
      std::vector<float> row(Activations::Padded(cols), -1.0F);
      ReadPaddedRow(weight->view, 129, row.data());
      for (std::size_t c = 0; c < row.size(); ++c) {
        ASSERT_EQ(row[c], c < cols ? weight->At(129, c) : 0.0F) << Name(format.dtype) << " " << c;
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(ReadRow, IsExactForEveryF8Value) {
  std::vector<std::byte> values(256);
  for (std::size_t i = 0; i < 256; ++i) values[i] = static_cast<std::byte>(i);
  const WeightView weight = {values.data(), DType::kF8E4M3, 1, 256, {}};
  std::vector<float> row(256);
  ReadRow(weight, 0, row.data());
  for (std::size_t i = 0; i < 256; ++i) {
    const auto expected = static_cast<float>(DecodeElement(DType::kF8E4M3, i));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(row[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(row[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  }
}

TEST(RoundTo, IsTheNearestValueTiesToEven) {
  std::mt19937 random(3);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<float> values;
    for (int i = 0; i < 5000; ++i) values.push_back(std::normal_distribution<float>(0.0F, 4.0F)(random));
    for (std::uint32_t i = 0; i < 64; ++i) values.push_back(std::bit_cast<float>(0x3f800000U + (i << 12)));  // ties
    std::vector<float> rounded = values;
    RoundTo(dtype, rounded);
    const int mantissa = dtype == DType::kBF16 ? 7 : 10;
    for (std::size_t i = 0; i < values.size(); ++i) {
      int exponent = 0;
      std::frexp(values[i], &exponent);
      const int lowest = dtype == DType::kF16 ? std::max(exponent - 1, -14) : exponent - 1;
      const double unit = std::ldexp(1.0, lowest - mantissa);
      const double expected = std::nearbyint(static_cast<double>(values[i]) / unit) * unit;
      ASSERT_EQ(static_cast<double>(rounded[i]), expected) << Name(dtype) << " " << values[i];
    }
  }
}

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
