#include "engine_side/quant/nvfp4_table.h"

#include <gtest/gtest.h>

#include <bit>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"

namespace layercast {
namespace {

float OfTopHalf(std::uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// Every weight that a block of any scale may have, for the amax whose bits these are.
void ExpectTheCodesOfTheArithmetic(std::uint32_t amax_bits) {
  const Nvfp4Table table(Nvfp4GlobalFactor(OfTopHalf(amax_bits)));
  ASSERT_EQ(table.min_code, 8);
  ASSERT_EQ(CodeByTable(table, 0, 0xbf80), 0);
  for (std::uint8_t scale = table.min_code; scale < 127; ++scale) {
    for (std::uint32_t bits = 0; OfTopHalf(bits) * table.factor[scale] <= 6.375F * 1.0001F; ++bits) {
      const std::uint8_t expected = EncodeE2M1(-OfTopHalf(bits) * table.factor[scale]);
      ASSERT_EQ(CodeByTable(table, scale, static_cast<std::uint16_t>(bits | 0x8000)), expected)
          << amax_bits << ' ' << int{scale} << ' ' << bits;
    }
  }
}

TEST(Nvfp4Table, GivesTheCodesOfTheArithmetic) {
  for (std::uint32_t mantissa = 0; mantissa < 128; mantissa += 7) ExpectTheCodesOfTheArithmetic(123 << 7 | mantissa);
  for (const std::uint32_t exponent : {40U, 200U, 254U}) ExpectTheCodesOfTheArithmetic(exponent << 7 | 21);
  ExpectTheCodesOfTheArithmetic(127 << 7 | 0x28);  // 2688 / amax is a power of two: products are ties
}

TEST(Nvfp4Table, IsNotOfferedWhereWeightsLoseBits) {
  EXPECT_EQ(Nvfp4Table(Nvfp4GlobalFactor(0x1p-107F)).min_code, 127);
}

}  // namespace
}  // namespace layercast
