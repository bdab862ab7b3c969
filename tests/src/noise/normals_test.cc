// What is drawn: Philox by its authors' known answers, and numbers that are distributed as they should be.
#include "src/noise/normals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "src/noise/fnv.h"

namespace layercast {
namespace {

TEST(Normals, PhiloxGivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr std::uint32_t kAll = 0xFFFFFFFF;
  EXPECT_EQ(Philox({kAll, kAll, kAll, kAll}, ~std::uint64_t{0}),
            (PhiloxBlock{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(Philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, 0x299F31D0A4093822),
            (PhiloxBlock{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Normals, LogarithmAndCircleAreThoseOfTheLibraryWithinAFewUlps) {
  for (double u = 0.5 / 4294967296.0; u < 1; u = u * 1.37 + 1e-11) {
    EXPECT_NEAR(Logarithm(u), std::log(u), 4e-16 * std::max(1.0, -std::log(u))) << u;
  }
  for (double v = 0; v < 1; v += 0.00137) {
    EXPECT_NEAR(OnCircle(v).cosine, std::cos(2 * std::numbers::pi * v), 1e-15) << v;
    EXPECT_NEAR(OnCircle(v).sine, std::sin(2 * std::numbers::pi * v), 1e-15) << v;
  }
}

TEST(Normals, HaveTheMomentsOfTheNormalDistribution) {
  for (const std::uint64_t seed : {0ULL, 1ULL, 0xFFFFFFFFFFFFFFFFULL}) {
    double sum = 0, squares = 0, fourth = 0;
    constexpr int kBlocks = 50'000;
    for (int block = 0; block < kBlocks; ++block) {
      for (const double n : Normals(seed, Fnv1a("model.norm.weight"), static_cast<std::uint64_t>(block))) {
        sum += n;
        squares += n * n;
        fourth += n * n * n * n;
      }
    }
    constexpr double kCount = 4.0 * kBlocks;
    EXPECT_NEAR(sum / kCount, 0, 0.01);
    EXPECT_NEAR(squares / kCount, 1, 0.02);
    EXPECT_NEAR(fourth / kCount, 3, 0.15);
  }
}

TEST(Normals, OtherSeedsNamesAndBlocksGiveOtherNumbers) {
  const std::uint64_t name = Fnv1a("a");
  const auto drawn = Normals(7, name, 0);
  EXPECT_EQ(drawn, Normals(7, name, 0));
  EXPECT_NE(drawn, Normals(8, name, 0));
  EXPECT_NE(drawn, Normals(7 | 1ULL << 32, name, 0));
  EXPECT_NE(drawn, Normals(7, Fnv1a("b"), 0));
  EXPECT_NE(drawn, Normals(7, name, 1));
  EXPECT_NE(drawn, Normals(7, name, 1ULL << 32));
}

TEST(Normals, NamesAreHashedAsFnvSaysIt) {
  EXPECT_EQ(Fnv1a(""), 0xCBF29CE484222325);
  EXPECT_EQ(Fnv1a("a"), 0xAF63DC4C8601EC8C);
  EXPECT_EQ(Fnv1a("foobar"), 0x85944171F73967E8);
}

}  // namespace
}  // namespace layercast
