#include "engine_side/quant/rescale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine_side/quant/codes.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

constexpr std::size_t kManyBands = 200'000;  // bytes of codes: several threads' work, the last one's less

float ValueOf(DType dtype, std::uint8_t code) { return static_cast<float>(DecodeElement(dtype, code)); }

std::vector<std::uint8_t> Codes(std::size_t count, unsigned step) {
  std::vector<std::uint8_t> codes(count);
  for (std::size_t i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>((i * step + i / 256) % 0x7f);
  return codes;
}

TEST(Rescale, IsTheCodeOfTheQuotientOrNothing) {
  WorkerPool pool(3);
  const std::vector<std::uint8_t> codes = Codes(kManyBands, 37);
  std::vector<std::uint8_t> rescaled = codes;
  constexpr float kFrom = 0.013F;
  constexpr float kTo = 0.021F;
  Rescale(rescaled, kFrom, kTo, pool);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    ASSERT_EQ(rescaled[i], EncodeE4M3(ValueOf(DType::kF8E4M3, codes[i]) * kFrom * (1.0F / kTo))) << i;
  }
  rescaled = codes;
  Rescale(rescaled, kTo, kTo, pool);
  EXPECT_EQ(rescaled, codes);
  Rescale(rescaled, 0.0F, 0.0F, pool);
  EXPECT_EQ(rescaled, codes);
}

// A value times the quotient of both scales, as when a weight is quantized (RECIPES.md), not the quotient of a product:
// here they lie on either side of 0.75, between the codes of 0.5 and 1.
TEST(RescaleNvfp4, MultipliesByTheQuotientOfTheScales) {
  WorkerPool pool(1);
  constexpr std::uint8_t kHalf = 1, kOne = 2, kFour = 6;
  struct Between {
    float from, to, scale;
    std::uint8_t expected;
  };
  for (const Between& one :
       {Between{0x1.788886p-4F, 0x1.f60b5ep-4F, 60.0F, kHalf}, Between{0x1.2fdc74p-6F, 0x1.187cbap-5F, 36.0F, kOne}}) {
    std::array<std::uint8_t, 8> codes{kFour | kHalf << 4U};
    std::array<std::uint8_t, 1> scale{EncodeE4M3(one.scale)};
    RescaleNvfp4(codes, scale, one.from, one.to, pool);
    EXPECT_EQ(codes[0] >> 4U, one.expected) << one.scale;
  }
}

TEST(RescaleNvfp4, TakesManyBlocksAsItTakesEach) {
  WorkerPool pool(3), one_thread(1);
  constexpr float kFrom = 0.25F, kTo = 0.375F;
  std::vector<std::uint8_t> codes = Codes(kManyBands, 11);
  std::vector<std::uint8_t> scales = Codes(codes.size() / 8, 5);
  std::vector<std::uint8_t> each = codes, scale_of_each = scales;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    RescaleNvfp4(std::span(each).subspan(8 * i, 8), std::span(scale_of_each).subspan(i, 1), kFrom, kTo, one_thread);
  }
  RescaleNvfp4(codes, scales, kFrom, kTo, pool);
  EXPECT_EQ(codes, each);
  EXPECT_EQ(scales, scale_of_each);
}

// One divided by such a scale is infinite: the recipe makes zeros of a weight that has it.
TEST(RescaleNvfp4, MakesZerosOfWhatTheRecipeDoes) {
  WorkerPool pool(1);
  std::vector<std::uint8_t> codes(16, 0x77), scales(2, 0x38);
  RescaleNvfp4(codes, scales, 0.0F, 1e-40F, pool);
  EXPECT_EQ(codes, std::vector<std::uint8_t>(16));
  EXPECT_EQ(scales, std::vector<std::uint8_t>(2));
}

}  // namespace
}  // namespace layercast
