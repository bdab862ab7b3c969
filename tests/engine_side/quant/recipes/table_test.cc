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
    for (const std::uint32_t exponent : {32U, 33U, 100U, 127U, 253U}) {
      for (std::uint32_t mantissa = 0; mantissa < 128; ++mantissa) {
        const std::uint32_t amax_bits = exponent << 7 | mantissa;
        const float scale = TensorScale(Bf16(amax_bits));
        const TableUse use = FindTable(division, Bf16(amax_bits), scale);
        ASSERT_TRUE(use.fits);
        ASSERT_EQ(use.add[0], TableUse::kFirstAdd);
        ASSERT_LT(amax_bits - use.first, 0x800U);  // in vector code, the bits above tell whether the table holds
        ASSERT_LE(use.first, 0x7800U);             // and for all weights below
        ASSERT_EQ(CodeByTable(use, use.first), 8);
        for (std::uint32_t bits = use.first; bits <= amax_bits; ++bits) {
          const float w = -Bf16(bits);
          const std::uint8_t expected = EncodeE4M3(division ? w / scale : w * (1.0F / scale));
          ASSERT_EQ(CodeByTable(use, static_cast<std::uint16_t>(bits | 0x8000)), expected) << amax_bits << ' ' << bits;
        }
      }
    }
  }
}

TEST(Fp8Table, GivesTheCodesOfScalesThatArePowersOfTwo) {
  for (std::uint32_t amax_bits = 127U << 7; amax_bits < 128U << 7; ++amax_bits) {
    const float scale = BlockScale(Bf16(amax_bits), true);
    const TableUse use = FindTable(false, Bf16(amax_bits), scale);
    ASSERT_TRUE(use.fits);
    ASSERT_LT(amax_bits - use.first, 0x800U);
    for (std::uint32_t bits = use.first; bits <= amax_bits; ++bits) {
      ASSERT_EQ(CodeByTable(use, static_cast<std::uint16_t>(bits)), EncodeE4M3(Bf16(bits) / scale)) << bits;
    }
  }
}

TEST(Fp8Table, IsNotOfferedForScalesThatAreNotMadeFromABf16Amax) {
  EXPECT_TRUE(FindTable(true, 3.0F, TensorScale(3.0F)).fits);
  EXPECT_FALSE(FindTable(true, 3.0001F, TensorScale(3.0001F)).fits);
  EXPECT_FALSE(FindTable(true, 0.0F, ChannelScale(0.0F)).fits);
  EXPECT_FALSE(FindTable(true, 1e-3F, ChannelScale(1e-3F)).fits);  // at the floor
  EXPECT_FALSE(FindTable(false, 1e-6F, BlockScale(1e-6F, true)).fits);
  EXPECT_FALSE(FindTable(false, Bf16(0x7f80), TensorScale(Bf16(0x7f80))).fits);  // infinity
  EXPECT_FALSE(FindTable(false, Bf16(0x7f00), TensorScale(Bf16(0x7f00))).fits);  // nearly
  EXPECT_FALSE(FindTable(false, Bf16(0x0f80), TensorScale(Bf16(0x0f80))).fits);  // tiny
}

}  // namespace
}  // namespace layercast
