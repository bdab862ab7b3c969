#include "engine_side/quant/codes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "engine_side/quant/scales.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

TEST(Scales, HaveTheirFloors) {
  EXPECT_EQ(ChannelScale(0.0F), 1.0F / 229376.0F);
  EXPECT_EQ(ChannelScale(448.0F), 1.0F);
  EXPECT_EQ(BlockScale(0.0F, false), 1e-4F / 448.0F);
  EXPECT_EQ(BlockScale(448.0F, true), 1.0F);
  EXPECT_EQ(BlockScale(449.0F, true), 2.0F);
  EXPECT_EQ(BlockScale(0.0F, true), std::ldexp(1.0F, -22));
  EXPECT_TRUE(IsZeroTensor(0.0F));
  EXPECT_TRUE(IsZeroTensor(1.3e-36F));
  EXPECT_FALSE(IsZeroTensor(1.4e-36F));
  EXPECT_EQ(Int8Scale(127.0F), 1.0F);
  EXPECT_EQ(Int8Scale(0.0F), 0.0F);
  EXPECT_TRUE(IsZeroNvfp4(4e-33F));
  EXPECT_FALSE(IsZeroNvfp4(4.1e-33F));
}

TEST(Scales, AnMxExponentIsThatOfTheSmallestPowerOfTwoThatWillDo) {
  EXPECT_EQ(MxExponent(448.0F, kMxfp8Element), 127);
  EXPECT_EQ(MxExponent(std::nextafter(448.0F, 500.0F), kMxfp8Element), 128);
  EXPECT_EQ(MxExponent(512.0F, kMxfp8Element), 128);
  EXPECT_EQ(MxExponent(std::numeric_limits<float>::max(), kMxfp8Element), 247);
  EXPECT_EQ(MxExponent(6.0F, kMxfp4Element), 127);
  EXPECT_EQ(MxExponent(std::nextafter(6.0F, 7.0F), kMxfp4Element), 128);
  EXPECT_EQ(MxExponent(8.0F, kMxfp4Element), 128);
  EXPECT_EQ(MxExponent(std::numeric_limits<float>::max(), kMxfp4Element), 253);
  for (const MxElement element : {kMxfp8Element, kMxfp4Element}) {
    EXPECT_EQ(MxExponent(0.0F, element), 0);
    EXPECT_EQ(MxExponent(std::numeric_limits<float>::denorm_min(), element), 0);
  }
  for (int exponent = 0; exponent <= 253; ++exponent) {
    EXPECT_EQ(MxFactor(static_cast<std::uint8_t>(exponent)), std::ldexp(1.0F, 127 - exponent));
  }
}

// Against the definition itself: the nearest of the magnitudes, the even code where two are as near.
std::uint8_t Nearest(DType dtype, double magnitude, int codes) {
  std::uint8_t best = 0;
  for (int code = 1; code < codes; ++code) {
    const auto candidate = static_cast<std::uint8_t>(code);
    const double distance = std::fabs(magnitude - DecodeElement(dtype, candidate));
    const double least = std::fabs(magnitude - DecodeElement(dtype, best));
    if (distance < least || (distance == least && code % 2 == 0)) best = candidate;
  }
  return best;
}

// Every bf16 value up to `limit`, and off by one.
template <class Body>
void ForManyFloats(float limit, const Body& body) {
  for (std::uint32_t bits = 0; (bits << 16) <= std::bit_cast<std::uint32_t>(limit); ++bits) {
    for (const std::uint32_t off : {0U, 1U, 0xffffU}) {
      const float value = std::bit_cast<float>((bits << 16) + off);
      if (value <= limit) body(value);
    }
  }
}

TEST(Codes, ACastToE4M3RoundsToTheNearestCode) {
  ForManyFloats(464.0F, [](float value) {
    const std::uint8_t nearest = Nearest(DType::kF8E4M3, value, 0x7f);
    ASSERT_EQ(EncodeE4M3(value), nearest) << value;
    ASSERT_EQ(EncodeE4M3(-value), nearest | 0x80) << -value;
  });
  EXPECT_EQ(EncodeE4M3(464.0F), 0x7e);
  EXPECT_EQ(EncodeE4M3(464.1F), 0x7f);
  EXPECT_EQ(EncodeE4M3(-std::numeric_limits<float>::infinity()), 0xff);
  EXPECT_EQ(EncodeE4M3(std::numeric_limits<float>::quiet_NaN()), 0x7f);
}

TEST(Codes, ACastToE2M1RoundsToTheNearestCodeAndSaturates) {
  ForManyFloats(1000.0F, [](float value) {
    const std::uint8_t nearest = Nearest(DType::kF4, value, 8);
    ASSERT_EQ(EncodeE2M1(value), nearest) << value;
    ASSERT_EQ(EncodeE2M1(-value), nearest | 8) << -value;
  });
  EXPECT_EQ(EncodeE2M1(std::numeric_limits<float>::max()), 7);
}

TEST(Codes, An8BitIntegerIsTheNearestAndNeverMinus128) {
  EXPECT_EQ(EncodeInt8(2.5F, 1.0F), 2);
  EXPECT_EQ(EncodeInt8(3.5F, 1.0F), 4);
  EXPECT_EQ(EncodeInt8(-3.5F, 1.0F), 0x100 - 4);
  EXPECT_EQ(EncodeInt8(1e9F, 1.0F), 127);
  EXPECT_EQ(EncodeInt8(-1e9F, 1.0F), 0x100 - 127);
  EXPECT_EQ(EncodeInt8(3.0F, 0.0F), 0);
}

}  // namespace
}  // namespace layercast
