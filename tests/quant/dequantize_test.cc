#include "engine_side/quant/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "engine_side/quant/codes.h"
#include "src/tensor/element.h"

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

TEST(Rescale, IsTheCodeOfTheQuotientOrACopy) {
  const std::vector<std::uint8_t> codes = FiniteCodes(256);
  std::vector<std::uint8_t> rescaled(codes.size());
  constexpr float kFrom = 0.013F;
  constexpr float kTo = 0.021F;
  Rescale(codes.data(), codes.size(), kFrom, kTo, rescaled.data());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    EXPECT_EQ(rescaled[i], EncodeE4M3(ValueOf(codes[i]) * kFrom * (1.0F / kTo))) << i;
  }
  Rescale(codes.data(), codes.size(), kTo, kTo, rescaled.data());
  EXPECT_EQ(rescaled, codes);
  Rescale(codes.data(), codes.size(), 0.0F, 0.0F, rescaled.data());
  EXPECT_EQ(rescaled, codes);
}

}  // namespace
}  // namespace layercast
