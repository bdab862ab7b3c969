#include "src/base/digest/digest.h"

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <random>
#include <vector>

namespace layercast {
namespace {

// As src/base/digest/digest.h says it, slowly, by the library's own functions.
Digest ByDefinition(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> above;
  for (std::size_t begin = 0; begin == 0 || begin < bytes.size(); begin += 8192) {
    const auto leaf = bytes.subspan(begin, std::min<std::size_t>(8192, bytes.size() - begin));
    const XXH128_hash_t hash = XXH3_128bits(leaf.data(), leaf.size());
    above.push_back(hash.high64);
    above.push_back(hash.low64);
  }
  if (above.size() == 2) return {above[0], above[1]};
  const XXH128_hash_t hash = XXH3_128bits(above.data(), above.size() * 8);
  return {hash.high64, hash.low64};
}

std::vector<std::byte> SomeBytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251);
  return bytes;
}

constexpr std::size_t kSizes[] = {0, 1, 240, 8191, 8192, 8193, 16'383, 16'384, 16'385, 100'000};

TEST(Digest, IsThatOfItsLeaves) {
  for (const std::size_t size : kSizes) {
    const std::vector<std::byte> bytes = SomeBytes(size);
    EXPECT_EQ(DigestOf(bytes), ByDefinition(bytes)) << size;
    std::vector<Digest> leaves;
    for (std::size_t i = 0; i < NumLeaves(size); ++i) {
      leaves.push_back(DigestOf(std::span(bytes).subspan(i * kLeafBytes, std::min(kLeafBytes, size - i * kLeafBytes))));
    }
    EXPECT_EQ(DigestOfLeaves(leaves), ByDefinition(bytes)) << size;
  }
}

// By whichever instructions the processor has: it is the library's own at every length, from any address.
TEST(Digest, OfALeafIsThatOfTheLibrary) {
  const std::vector<std::byte> bytes = SomeBytes(8192 + 64);
  for (std::size_t size = 0; size <= 8192; size += size < 2200 ? 1 : 61) {
    const std::span<const std::byte> leaf = std::span(bytes).subspan(size % 64, size);
    EXPECT_EQ(DigestOf(leaf), ByDefinition(leaf)) << size;
  }
}

TEST(Digest, OfPiecesEqualsThatOfTheWhole) {
  std::mt19937 random(7);
  for (const std::size_t size : kSizes) {
    const std::vector<std::byte> bytes = SomeBytes(size);
    for (int round = 0; round < 20; ++round) {
      Digester digester;
      for (std::span<const std::byte> rest = bytes; !rest.empty();) {
        const std::size_t most = round % 2 == 0 ? 9000 : 30'000;
        const std::size_t piece =
            std::min<std::size_t>(rest.size(), std::uniform_int_distribution<std::size_t>(1, most)(random));
        digester.Update(rest.first(piece));
        rest = rest.subspan(piece);
        EXPECT_EQ(digester.Finish(), DigestOf(std::span(bytes).first(size - rest.size())));
      }
      EXPECT_EQ(Digester(digester).Finish(), DigestOf(bytes));
      digester.Reset();
      EXPECT_EQ(digester.Finish(), DigestOf({}));
    }
  }
}

TEST(Digest, OfOneLeafIsXxh3Of128Bits) {
  // Published by xxHash for the empty input.
  EXPECT_EQ(DigestOf({}).ToHex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, ComesBackFromHex) {
  const Digest digest{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(Digest::FromHex(digest.ToHex()), digest);
  EXPECT_EQ(Digest::FromHex("0123"), std::nullopt);
  EXPECT_EQ(Digest::FromHex(std::string(31, '0') + "g"), std::nullopt);
}

}  // namespace
}  // namespace layercast
