#include "engine_side/engine/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

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
  double At(std::size_t row, std::size_t col) const {
    const auto index = static_cast<std::int64_t>(row * view.cols + col);
    const double value = view.dtype == DType::kI8
                             ? static_cast<double>(static_cast<std::int8_t>(values[row * view.cols + col]))
                             : ElementValue(view.dtype, values.data(), index);
    if (view.scale.scales == nullptr) return value;
    const std::size_t per_row = (view.cols + view.scale.cols - 1) / view.scale.cols;
    const std::size_t block = row / view.scale.rows * per_row + col / view.scale.cols;
    const double scale = ElementValue(view.scale.dtype, scales.data(), static_cast<std::int64_t>(block));
    return value * scale * (view.scale.global == nullptr ? 1.0 : static_cast<double>(global));
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
      Linear(x, weight->view, y);
      for (std::size_t t = 0; t < 6; ++t) {
        for (std::size_t r = 0; r < rows; ++r) {
          double sum = 0.0;
          double magnitude = 0.0;
          for (std::size_t c = 0; c < cols; ++c) {
            const double product = static_cast<double>(x.row(t)[c]) * weight->At(r, c);
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
    Linear(x, weight->view, together);
    for (std::size_t t = 0; t < 11; ++t) {
      Activations alone(1, cols);
      std::copy_n(x.row(t), x.stride(), alone.row(0));
      Activations y(1, 70);
      Linear(alone, weight->view, y);
      ASSERT_EQ(std::memcmp(y.row(0), together.row(t), 70 * sizeof(float)), 0) << t;
    }
  }
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
  std::vector<float> out(Padded(kDim));
  Attend(query.row(0), {keys.row(0), keys.stride(), kCount}, {values.row(0), values.stride(), kCount}, 0.25F,
         Padded(kDim), scores, out.data());
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
  Attend(query.row(0), {poisoned.row(0), keys.stride(), kCount}, {values.row(0), values.stride(), kCount}, 0.25F,
         Padded(kDim), scores, out.data());
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(RowKernels, NormalizeRotateAndGateAsTheirFormulasSay) {
  std::mt19937 random(5);
  constexpr std::size_t kDim = 22;
  const Activations x = RandomRows(3, kDim, random);
  const std::span<const float> row(x.row(0), kDim);
  const std::span<const float> weight(x.row(1), kDim);
  std::vector<float> y(kDim);
  RmsNorm(row, weight, 1e-6F, DType::kF32, y);
  double squares = 0.0;
  for (const float v : row) squares += static_cast<double>(v) * static_cast<double>(v);
  const double factor = 1.0 / std::sqrt(squares / kDim + 1e-6);
  std::vector<float> gate(row.begin(), row.end());
  gate[0] = -200.0F;
  gate[1] = 200.0F;
  const std::vector<float> before = gate;
  SiluMultiply(gate, weight, DType::kF32);
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

}  // namespace
}  // namespace layercast
