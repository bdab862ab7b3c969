// The messages that the copying channels share; that damaged ones are refused is tested with each channel's own.
#include "src/transport/channel/channel_messages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/hex.h"

namespace layercast {
namespace {

using test::Hex;

TEST(ChannelMessages, HaveTheirExactBytes) {
  const std::vector<Region> regions = {{1, 2, 3, 4, 5}, {0xFFFFFFFF, ~std::uint64_t{0}, 7, 8, 9}};
  EXPECT_EQ(Hex(Encode(Bare{Kind::kPing})), "03");
  EXPECT_EQ(Hex(Encode(Bare{Kind::kPong})), "83");
  EXPECT_EQ(Hex(Encode(Request{11, 12, regions})),
            "020b000000000000000c00000000000000020000000100000002000000000000000300000000000000040000000000000005000000"
            "00000000ffffffffffffffffffffffff070000000000000008000000000000000900000000000000");
  EXPECT_EQ(Hex(Encode(Request{11, 12, {}})), "020b000000000000000c0000000000000000000000");
}

TEST(ChannelMessages, ARefusalOfEveryCodeHasItsExactBytes) {
  std::string codes;
  for (int number = 0; number <= static_cast<int>(ErrorCode::kInternal); ++number) {
    const std::string hex = Hex(Encode(Refusal{5, static_cast<ErrorCode>(number), "gone: \xff, and more"}));
    EXPECT_EQ(hex.substr(0, 18) + hex.substr(20), "8405000000000000000600676f6e653a20");
    codes += hex.substr(18, 2);
  }
  EXPECT_EQ(codes, "02010505050503050405");
}

}  // namespace
}  // namespace layercast
