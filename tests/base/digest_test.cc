#include "src/base/digest.h"

#include <gtest/gtest.h>

#include <vector>

namespace layercast {
namespace {

TEST(Digest, OfPiecesEqualsThatOfTheWhole) {
  std::vector<std::byte> bytes(10'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31);
  Digester digester;
  digester.Update(std::span(bytes).first(3));
  digester.Update(std::span(bytes).subspan(3));
  EXPECT_EQ(digester.Finish(), DigestOf(bytes));
}

TEST(Digest, IsXxh3Of128Bits) {
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
