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
        ASSERT_NE(use.table, nullptr);
        for (std::uint32_t bits = std::uint32_t{use.min_high} << 8; bits <= amax_bits; ++bits) {
          const float w = -Bf16(bits);
          const std::uint8_t expected = EncodeE4M3(division ? w / scale : w * (1.0F / scale));
          ASSERT_EQ(CodeByTable(use, static_cast<std::uint16_t>(bits | 0x8000)), expected) << amax_bits << ' ' << bits;
        }
      }
    }
  }
}

TEST(Fp8Table, IsNotOfferedForAScaleThatIsNotMadeFromABf16Amax) {
  EXPECT_NE(FindTable(true, 3.0F, TensorScale(3.0F)).table, nullptr);
  EXPECT_EQ(FindTable(true, 3.0001F, TensorScale(3.0001F)).table, nullptr);
  EXPECT_EQ(FindTable(true, 0.0F, ChannelScale(0.0F)).table, nullptr);
  EXPECT_EQ(FindTable(true, 1e-3F, ChannelScale(1e-3F)).table, nullptr);  // at the floor
  EXPECT_EQ(FindTable(false, 3.0F, BlockScale(3.0F, true)).table, nullptr);
  EXPECT_EQ(FindTable(false, Bf16(0x7f80), TensorScale(Bf16(0x7f80))).table, nullptr);  // infinity
  EXPECT_EQ(FindTable(false, Bf16(0x0f80), TensorScale(Bf16(0x0f80))).table, nullptr);  // tiny
}

}  // namespace
}  // namespace layercast
