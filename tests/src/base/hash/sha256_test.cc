#include "src/base/hash/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace layercast {
namespace {

std::span<const std::byte> BytesIn(std::string_view text) { return std::as_bytes(std::span(text)); }

// FIPS 180-4's examples.
TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(ToHex(HashOf({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(ToHex(HashOf(BytesIn("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(HashOf(BytesIn("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(ToHex(HashOf(BytesIn(std::string(1'000'000, 'a')))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, OfPiecesIsThatOfTheWhole) {
  const std::string text(1000, 'x');
  for (std::size_t cut = 0; cut <= text.size(); cut += 37) {
    Hasher hasher;
    hasher.Update(BytesIn(text).first(cut));
    hasher.Update(BytesIn(text).subspan(cut));
    EXPECT_EQ(hasher.Finish(), HashOf(BytesIn(text))) << cut;
  }
}

}  // namespace
}  // namespace layercast
