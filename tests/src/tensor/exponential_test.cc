#include "src/tensor/exponential.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace layercast {
namespace {

std::uint32_t BitsOf(float value) { return std::bit_cast<std::uint32_t>(value); }

// By the C library's widest exp: rounded twice, from 64 bits.
float Expected(float x) { return -static_cast<float>(std::exp(static_cast<long double>(x))); }

void ExpectRounded(float x) { ASSERT_EQ(BitsOf(NegatedExponential(x)), BitsOf(Expected(x))) << std::hexfloat << x; }

TEST(NegatedExponential, IsRoundedAsTheWidestOfTheLibraryForEveryBf16AndF16) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((bits & 0x7F80) != 0x7F80) ExpectRounded(conversions::BF16::ToFloat(half));
    if ((bits & 0x7C00) != 0x7C00) ExpectRounded(conversions::F16::ToFloat(half));
  }
}

TEST(NegatedExponential, IsSoForRandomFp32InEveryOctave) {
  std::mt19937 random(5);
  for (int exponent = -30; exponent < 8; ++exponent) {
    for (int i = 0; i < 20'000; ++i) {
      const float x = std::ldexp(1.0F + static_cast<float>(random() >> 9) * 0x1p-23F, exponent);
      ExpectRounded(x);
      ExpectRounded(-x);
    }
  }
}

TEST(NegatedExponential, EndsInZeroAndInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float x : {0.0F, -0.0F, 88.72283F, 88.72284F, 89.0F, 1e30F, kInfinity, -87.33654F, -87.4F, -103.27892F,
                        -103.97207F, -103.97209F, -104.0F, -1e30F, -kInfinity, 1e-45F, -1e-45F}) {
    ExpectRounded(x);
  }
  EXPECT_TRUE(std::isnan(NegatedExponential(std::nanf(""))));
}

}  // namespace
}  // namespace layercast
