#include "engine_side/quant/fp8_table.h"

#include <gtest/gtest.h>

#include <bit>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"

namespace layercast {
namespace {

float Bf16(std::uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// Every weight that a table claims to hold for, under every amax mantissa and some exponents.
TEST(Fp8Table, GivesTheCodesOfTheArithmetic) {
  for (const bool division : {false, true}) {
    for (const std::uint32_t exponent : {32U, 33U, 100U, 127U, 254U}) {
      for (std::uint32_t mantissa = 0; mantissa < 128; ++mantissa) {
        const std::uint32_t amax_bits = exponent << 7 | mantissa;
        const float scale = TensorScale(Bf16(amax_bits));
        const TableUse use = FindTable(division, Bf16(amax_bits), scale);
        ASSERT_TRUE(use.fits);
        for (std::uint32_t bits = std::uint32_t{use.min_high[0]} << 8; bits <= amax_bits; ++bits) {
          const float w = -Bf16(bits);
          const std::uint8_t expected = EncodeE4M3(division ? w / scale : w * (1.0F / scale));
          ASSERT_EQ(CodeByTable(use, static_cast<std::uint16_t>(bits | 0x8000)), expected) << amax_bits << ' ' << bits;
        }
      }
    }
  }
}

TEST(Fp8Table, IsNotOfferedForAScaleThatIsNotMadeFromABf16Amax) {
  EXPECT_TRUE(FindTable(true, 3.0F, TensorScale(3.0F)).fits);
  EXPECT_FALSE(FindTable(true, 3.0001F, TensorScale(3.0001F)).fits);
  EXPECT_FALSE(FindTable(true, 0.0F, ChannelScale(0.0F)).fits);
  EXPECT_FALSE(FindTable(true, 1e-3F, ChannelScale(1e-3F)).fits);  // at the floor
  EXPECT_FALSE(FindTable(false, 3.0F, BlockScale(3.0F, true)).fits);
  EXPECT_FALSE(FindTable(false, Bf16(0x7f80), TensorScale(Bf16(0x7f80))).fits);  // infinity
  EXPECT_FALSE(FindTable(false, Bf16(0x0f80), TensorScale(Bf16(0x0f80))).fits);  // tiny
}

}  // namespace
}  // namespace layercast
