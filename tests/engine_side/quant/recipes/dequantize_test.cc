#include "engine_side/quant/dequantize.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "src/tensor/element.h"
#include "tests/engine_side/quant/recipes/hard_weights.h"
#include "tests/engine_side/quant/recipes/quantized.h"

namespace layercast {
namespace {

float ValueOf(std::uint8_t code) { return static_cast<float>(DecodeElement(DType::kF8E4M3, code)); }

std::vector<std::uint8_t> FiniteCodes(std::size_t count) {
  std::vector<std::uint8_t> codes(count);
  for (std::size_t i = 0; i < count; ++i)
    codes[i] = static_cast<std::uint8_t>((i * 37 % 127) | (i % 3 == 0 ? 0x80 : 0));
  return codes;
}

TEST(Dequantize, IsCodeTimesTheScaleOfItsBlock) {
  WorkerPool pool(2);
  constexpr std::int64_t kRows = 11;
  constexpr std::int64_t kCols = 13;
  const std::vector<std::uint8_t> codes = FiniteCodes(kRows * kCols);
  for (const std::int64_t block : {1, 4, 13, 100}) {  // the last ones are partial
    const std::int64_t per_row = (kCols + block - 1) / block;
    std::vector<float> scales(static_cast<std::size_t>((kRows + block - 1) / block * per_row));
    std::iota(scales.begin(), scales.end(), 0.3F);
    std::vector<float> values(codes.size());
    Dequantize({codes.data(), kRows, kCols, scales, block, block}, DType::kF32,
               reinterpret_cast<std::byte*>(values.data()), pool);
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      const std::int64_t scale = i / kCols / block * per_row + i % kCols / block;
      const auto index = static_cast<std::size_t>(i);
      ASSERT_EQ(values[index], ValueOf(codes[index]) * scales[static_cast<std::size_t>(scale)]) << block << " " << i;
    }
  }
}

TEST(Dequantize, RoundsToTheModelsType) {
  WorkerPool pool(1);
  const std::vector<std::uint8_t> codes = FiniteCodes(256);
  std::vector<std::uint16_t> values(codes.size());
  Dequantize({codes.data(), 1, 256, {1.0F / 3.0F}, 1, 256}, DType::kBF16, reinterpret_cast<std::byte*>(values.data()),
             pool);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const double exact = static_cast<double>(ValueOf(codes[i]) * (1.0F / 3.0F));
    const double rounded = DecodeElement(DType::kBF16, values[i]);
    EXPECT_LE(std::abs(rounded - exact), std::abs(exact) / 256.0) << i;
  }
}

// Element (row, col) of what a recipe made, as RECIPES.md defines it.
float SlowValue(const std::string& recipe, const Quantized& made, std::int64_t row, std::int64_t col,
                std::int64_t cols) {
  const auto value = [&](std::size_t tensor, DType dtype, std::int64_t index) {
    return static_cast<float>(ElementValue(dtype, made.tensors[tensor].data(), index));
  };
  const std::int64_t index = row * cols + col;
  if (recipe == "int8_per_channel") {
    return static_cast<float>(std::to_integer<std::int8_t>(made.tensors[0][static_cast<std::size_t>(index)])) *
           value(1, DType::kF32, row);
  }
  if (recipe == "nvfp4") {
    const float scale = value(1, DType::kF8E4M3, row * cols / 16 + col / 16) * value(2, DType::kF32, 0);
    return value(0, DType::kF4, index) * scale;
  }
  if (recipe == "mxfp4") return value(0, DType::kF4, index) * value(1, DType::kF8E8M0, row * cols / 32 + col / 32);
  const float code = value(0, DType::kF8E4M3, index);
  if (recipe == "mxfp8") return code * value(1, DType::kF8E8M0, row * cols / 32 + col / 32);
  if (recipe == "fp8_per_block") return code * value(1, DType::kF32, row / 128 * ((cols + 127) / 128) + col / 128);
  const bool is_of_rows = made.specs[1].shape.front() > 1;
  return code * value(1, DType::kF32, is_of_rows ? row : 0);
}

TEST(Dequantize, ReadsWhatEveryRecipeMakes) {
  WorkerPool pool(2);
  constexpr std::int64_t kRows = 131;
  constexpr std::int64_t kCols = 160;
  const Weight weight = MakeWeight("mixed", DType::kBF16, kRows, kCols);
  for (const std::string& name : KnownRecipes()) {
    if (name == "none") continue;
    const std::unique_ptr<const Recipe> recipe = MakeRecipe(name);
    Quantized made = QuantizeWhole(*recipe, weight.view(), {}, pool);
    std::vector<float> values(kRows * kCols);
    Dequantize(recipe->Read(made.views()), DType::kF32, reinterpret_cast<std::byte*>(values.data()), pool);
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      ASSERT_EQ(values[static_cast<std::size_t>(i)], SlowValue(name, made, i / kCols, i % kCols, kCols))
          << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace layercast
