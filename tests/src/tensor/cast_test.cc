#include "src/tensor/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

namespace layercast {
namespace {

std::uint16_t CastOne(DType to, float value) {
  std::uint16_t out = 0;
  Cast(DType::kF32, reinterpret_cast<const std::byte*>(&value), to, reinterpret_cast<std::byte*>(&out), 1);
  return out;
}

float Back(DType from, std::uint16_t bits) {
  float out = 0;
  Cast(from, reinterpret_cast<const std::byte*>(&bits), DType::kF32, reinterpret_cast<std::byte*>(&out), 1);
  return out;
}

// The nearest of a 16-bit type's values, ties to the even code, found by looking at the neighbours of a guess.
std::uint16_t NearestByEnumeration(DType dtype, float value) {
  // Codes of one sign are in order of magnitude: search among them all.
  const bool negative = std::signbit(value);
  std::uint16_t low = 0;
  std::uint16_t high = dtype == DType::kF16 ? 0x7C00 : 0x7F80;  // infinity
  const double magnitude = std::fabs(static_cast<double>(value));
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (static_cast<double>(Back(dtype, middle)) <= magnitude ? low : high) = middle;
  }
  const double below = static_cast<double>(Back(dtype, low));
  double above = static_cast<double>(Back(dtype, high));
  if (std::isinf(above)) above = 2 * below - static_cast<double>(Back(dtype, static_cast<std::uint16_t>(low - 1)));
  const double to_below = magnitude - below;
  const double to_above = above - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && (low & 1) == 1);
  return static_cast<std::uint16_t>((up ? high : low) | (negative ? 0x8000 : 0));
}

TEST(Cast, RoundsToNearestEvenLikeAnEnumerationOfAllValues) {
  std::mt19937 random(7);
  std::uniform_int_distribution<std::uint32_t> any_bits;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (int i = 0; i < 200'000; ++i) {
      const auto value = std::bit_cast<float>(any_bits(random));
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(CastOne(dtype, value), NearestByEnumeration(dtype, value)) << Name(dtype) << " " << value;
    }
  }
}

TEST(Cast, RoundsTiesAndSubnormalsOfHalfPrecision) {
  for (std::uint32_t code = 0; code < 0x7C00; ++code) {
    const float value = Back(DType::kF16, static_cast<std::uint16_t>(code));
    const float next = code + 1 == 0x7C00 ? 65536.0F : Back(DType::kF16, static_cast<std::uint16_t>(code + 1));
    ASSERT_EQ(CastOne(DType::kF16, value), code);
    ASSERT_EQ(CastOne(DType::kF16, (value + next) / 2), code + (code & 1)) << value;
  }
}

TEST(Cast, EveryValueOfSixteenBitsComesBack) {
  for (std::uint32_t code = 0; code <= 0xFFFF; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const float value = Back(dtype, bits);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(Back(dtype, CastOne(dtype, value))));
      } else {
        ASSERT_EQ(CastOne(dtype, value), bits);
      }
    }
  }
}

TEST(Cast, DoubleGoesThroughFloat) {
  const double value = 1.0 + 0x1p-8 + 0x1p-40;  // rounds to a tie in fp32, then down to even in bf16
  std::uint16_t out = 0;
  Cast(DType::kF64, reinterpret_cast<const std::byte*>(&value), DType::kBF16, reinterpret_cast<std::byte*>(&out), 1);
  EXPECT_EQ(out, CastOne(DType::kBF16, static_cast<float>(value)));
}

TEST(Cast, TellsWhetherAResultIsNotFinite) {
  const auto stays_finite = [](DType from, DType to, double value) {
    std::vector<std::byte> in(101 * 8);
    std::vector<std::byte> out(101 * 8);
    const auto at = static_cast<std::size_t>(BitsPerElement(from)) / 8 * 77;  // among zeros
    if (from == DType::kF64) {
      std::memcpy(&in[at], &value, sizeof(value));
    } else {
      Cast(DType::kF64, reinterpret_cast<const std::byte*>(&value), from, &in[at], 1);
    }
    return Cast(from, in.data(), to, out.data(), 101);
  };
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [from, to, fits, beyond] :
       {std::tuple(DType::kBF16, DType::kF16, 65280.0, 65536.0), std::tuple(DType::kF32, DType::kF16, 65519.0, 65520.0),
        std::tuple(DType::kF64, DType::kF16, 65519.0, 1e300), std::tuple(DType::kF32, DType::kBF16, 3.3895e38, 3.4e38),
        std::tuple(DType::kF64, DType::kBF16, 3.3895e38, 3.4e38),
        std::tuple(DType::kF64, DType::kF32, 3.4028e38, 3.5e38)}) {
    for (const double sign : {1.0, -1.0}) {
      EXPECT_TRUE(stays_finite(from, to, sign * fits)) << Name(from) << " to " << Name(to);
      EXPECT_FALSE(stays_finite(from, to, sign * beyond)) << Name(from) << " to " << Name(to);
      EXPECT_FALSE(stays_finite(from, to, sign * infinity)) << Name(from) << " to " << Name(to);
    }
    EXPECT_FALSE(stays_finite(from, to, std::numeric_limits<double>::quiet_NaN())) << Name(from) << " to " << Name(to);
  }
}

TEST(Cast, KnowsWhatItCannotDo) {
  EXPECT_TRUE(CanCast(DType::kF64, DType::kF16));
  EXPECT_FALSE(CanCast(DType::kF32, DType::kF8E4M3));
  EXPECT_FALSE(CanCast(DType::kI32, DType::kF32));
}

TEST(Cast, RoundsALargestMagnitudeAsItsTensor) {
  EXPECT_EQ(RoundTo(DType::kBF16, 1.001F), 1.0F);
  EXPECT_EQ(RoundTo(DType::kF32, 1.001F), 1.001F);
}

}  // namespace
}  // namespace layercast
