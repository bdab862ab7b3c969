// Powers against bits that torch gave. test_rope.py has torch itself, and many more of them.
#include "engine_side/engine/built_in/power.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace layercast {
namespace {

// What rotary embeddings of `dim` elements take: 2i / dim.
std::vector<float> Exponents(std::size_t dim) {
  std::vector<float> exponents(dim / 2);
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    exponents[i] = static_cast<float>(2 * i) / static_cast<float>(dim);
  }
  return exponents;
}

std::vector<std::uint32_t> BitsOfPowers(float base, std::span<const float> exponents) {
  std::vector<std::uint32_t> bits;
  for (const float power : Powers(base, exponents)) bits.push_back(std::bit_cast<std::uint32_t>(power));
  return bits;
}

// torch 2.11 with AVX2.
TEST(Powers, HaveTheBitsOfTorchs) {
  EXPECT_THAT(
      BitsOfPowers(150000.0F, Exponents(42)),
      ::testing::ElementsAre(0x3f800000, 0x3fe1c85a, 0x404721cb, 0x40afa08c, 0x411ae58e, 0x41889cfb, 0x41f0f9c8,
                             0x42548820, 0x42bb71f9, 0x432551de, 0x4391ce55, 0x44009878, 0x4462d54b, 0x44c80efd,
                             0x453071be, 0x459b9e0e, 0x46093fb4, 0x467218cd, 0x46d58544, 0x473c513b, 0x47a616c6));
  EXPECT_THAT(BitsOfPowers(500000.0F, Exponents(52)),
              ::testing::ElementsAre(0x3f800000, 0x3fd40828, 0x402f9d83, 0x40917408, 0x40f0f174, 0x41478fa1, 0x41a5494c,
                                     0x4208e5f9, 0x4262c59d, 0x42bbd2df, 0x431b909c, 0x4380d8b6, 0x43d56f23, 0x4430c6d6,
                                     0x44926a4e, 0x44f2895f, 0x4548e182, 0x45a66121, 0x4609cdc0, 0x46644587, 0x46bd10de,
                                     0x471c97fa, 0x4781b2db, 0x47d6d879, 0x4831f221, 0x4893622a));
  EXPECT_THAT(
      BitsOfPowers(1000000.0F, Exponents(42)),
      ::testing::ElementsAre(0x3f800000, 0x3ff7211b, 0x406e90e6, 0x40e64ca8, 0x415e51bd, 0x41d69d9c, 0x424f2dd5,
                             0x42c80002, 0x434111de, 0x43ba6134, 0x4433ebe2, 0x44adafe0, 0x4527ab26, 0x45a1dbcf,
                             0x461c4003, 0x4696d5f7, 0x47119bf2, 0x478c904a, 0x4807b164, 0x4882fdb3, 0x48fce770));
}

// So the test above tells the two apart: of these, 2 are not what rounding the exact power gives.
TEST(Powers, AreTheCLibrarysOnlyBehindTheLastBlock) {
  const std::vector<float> exponents = Exponents(42);
  const std::vector<float> powers = Powers(150000.0F, exponents);
  std::vector<std::size_t> different;
  for (std::size_t i = 0; i < powers.size(); ++i) {
    if (powers[i] != std::pow(150000.0F, exponents[i])) different.push_back(i);
  }
  EXPECT_THAT(different, ::testing::ElementsAre(10, 14));
  const std::vector<float> few(exponents.begin(), exponents.begin() + 15);  // no whole block
  EXPECT_EQ(Powers(150000.0F, few)[10], std::pow(150000.0F, few[10]));
}

TEST(Powers, AreWithinOneUnitInTheLastPlace) {
  const std::vector<float> exponents = Exponents(512);
  for (const float base : {0.75F, 1.0F, 1.5F, 2.0F, 10000.0F, 1e11F, 3.4e38F}) {
    const std::vector<float> powers = Powers(base, exponents);
    for (std::size_t i = 0; i < powers.size(); ++i) {
      const double exact = std::pow(static_cast<double>(base), static_cast<double>(exponents[i]));
      const double unit = std::nextafter(powers[i], std::numeric_limits<float>::infinity()) - powers[i];
      EXPECT_LE(std::abs(powers[i] - exact), unit) << base << " ^ " << exponents[i];
    }
  }
}

}  // namespace
}  // namespace layercast
