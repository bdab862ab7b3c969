// Products with weights of every format, against the obvious sum; rows that are read, and numbers that are rounded.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "src/tensor/element.h"
#include "tests/engine_side/engine/cpu/kernels/random_rows.h"

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

}  // namespace
}  // namespace layercast
