// The messages of the zmq channel: what is written is read, and what is damaged is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/transport/zmq/zmq_messages.h"
#include "tests/support/hex.h"
#include "tests/support/transport/damaged_messages.h"

namespace layercast::zmq_channel {
namespace {

using ::testing::AnyOf;

TEST(ZmqMessages, AreReadAsTheyWereWritten) {
  const std::vector<Region> regions = {{1, 2, 3, 4, 5}, {0xFFFFFFFF, ~std::uint64_t{0}, 7, 8, 9}};
  const Request request = Decode<Request>(Encode(Request{11, 12, regions}));
  EXPECT_EQ(request.ticket, 11U);
  EXPECT_EQ(request.offer_id, 12U);
  EXPECT_EQ(request.regions, regions);
  const PieceHeader header = Decode<PieceHeader>(Encode(PieceHeader{1, 1ULL << 40, 77}));
  EXPECT_EQ(header.ticket, 1U);
  EXPECT_EQ(header.offset, 1ULL << 40);
  EXPECT_EQ(header.bytes, 77U);
  const Refusal refusal = Decode<Refusal>(Encode(Refusal{5, ErrorCode::kNotFound, "gone"}));
  EXPECT_EQ(refusal.ticket, 5U);
  EXPECT_EQ(refusal.code, ErrorCode::kNotFound);
  EXPECT_EQ(refusal.message, "gone");
  EXPECT_EQ(Decode<Hello>(Encode(Hello{})).version, kVersion);
  EXPECT_EQ(Decode<Welcome>(Encode(Welcome{})).version, kVersion);
  Decode<Bare>(Encode(Bare{Kind::kPing}));
  Decode<Bare>(Encode(Bare{Kind::kPong}));
}

TEST(ZmqMessages, HaveTheirExactBytes) {
  using test::Hex;
  EXPECT_EQ(Hex(Encode(Hello{})), "014c435a510200");
  EXPECT_EQ(Hex(Encode(Welcome{})), "814c435a510200");
  EXPECT_EQ(Hex(Encode(PieceHeader{1, 1ULL << 40, 77})), "82010000000000000000000000000100004d000000");
}

TEST(ZmqMessages, ARefusalForAnyReasonIsReadAsARefusal) {
  for (int number = 0; number <= static_cast<int>(ErrorCode::kInternal); ++number) {
    const auto code = static_cast<ErrorCode>(number);
    EXPECT_THAT(Decode<Refusal>(Encode(Refusal{5, code, "no"})).code, AnyOf(code, ErrorCode::kUnavailable));
  }
  EXPECT_EQ(Decode<Refusal>(Encode(Refusal{5, ErrorCode::kResourceExhausted, "no"})).code,
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(Decode<Refusal>(Encode(Refusal{5, ErrorCode::kInternal, "no"})).code, ErrorCode::kUnavailable);
}

TEST(ZmqMessages, ALongRefusalIsCutBetweenTwoCharacters) {
  const std::string most(999, 'x');
  EXPECT_EQ(Decode<Refusal>(Encode(Refusal{5, ErrorCode::kNotFound, most + "yz"})).message, most + "y");
  EXPECT_EQ(Decode<Refusal>(Encode(Refusal{5, ErrorCode::kNotFound, most + "\u20ac"})).message, most);
  EXPECT_EQ(Decode<Refusal>(Encode(Refusal{5, ErrorCode::kNotFound, "gone: \xff, and more"})).message, "gone: ");
}

// Reads `message` as whatever it says it is.
void DecodeAny(std::span<const std::byte> message) {
  switch (DecodeKind(message)) {
    case Kind::kHello: Decode<Hello>(message); break;
    case Kind::kWelcome: Decode<Welcome>(message); break;
    case Kind::kRequest: Decode<Request>(message); break;
    case Kind::kPiece: Decode<PieceHeader>(message); break;
    case Kind::kRefused: Decode<Refusal>(message); break;
    case Kind::kPing:
    case Kind::kPong: Decode<Bare>(message); break;
  }
}

TEST(ZmqMessages, ThatAreDamagedAreCorruptAndNothingElse) {
  const std::vector<Region> regions(5, Region{1, 2, 3, 4, 5});
  testing::ExpectDamagedOnesAreRefused(
      {Encode(Hello{}), Encode(Welcome{}), Encode(Request{1, 2, regions}), Encode(PieceHeader{1, 2, 3}),
       Encode(Bare{Kind::kPing}), Encode(Refusal{1, ErrorCode::kInvalidArgument, "no"})},
      DecodeAny);
}

}  // namespace
}  // namespace layercast::zmq_channel
