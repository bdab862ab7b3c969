// The messages of the zmq channel: what is written is read, and what is damaged is refused.
#include <gtest/gtest.h>

#include <random>

#include "src/transport/zmq/messages.h"
#include "src/transport/zmq/reply_plan.h"

namespace layercast::zmq_channel {
namespace {

TEST(ZmqMessages, AreReadAsTheyWereWritten) {
  const std::vector<Region> regions = {{1, 2, 3, 4, 5}, {0xFFFFFFFF, ~std::uint64_t{0}, 7, 8, 9}};
  const Request request = DecodeRequest(EncodeRequest(11, 12, regions));
  EXPECT_EQ(request.ticket, 11U);
  EXPECT_EQ(request.offer_id, 12U);
  EXPECT_EQ(request.regions, regions);
  const PieceHeader header = DecodePieceHeader(EncodePieceHeader({1, 1ULL << 40, 77}));
  EXPECT_EQ(header.ticket, 1U);
  EXPECT_EQ(header.offset, 1ULL << 40);
  EXPECT_EQ(header.bytes, 77U);
  const Refusal refusal = DecodeRefusal(EncodeRefusal({5, ErrorCode::kNotFound, "gone"}));
  EXPECT_EQ(refusal.ticket, 5U);
  EXPECT_EQ(refusal.code, ErrorCode::kNotFound);
  EXPECT_EQ(refusal.message, "gone");
  EXPECT_EQ(DecodeHello(EncodeHello()), kVersion);
  EXPECT_EQ(DecodeWelcome(EncodeWelcome()), kVersion);
  DecodeBare(EncodePing());
  DecodeBare(EncodePong());
}

// Reads `message` as whatever it says it is.
void DecodeAny(std::span<const std::byte> message) {
  switch (DecodeKind(message)) {
    case Kind::kHello: DecodeHello(message); break;
    case Kind::kWelcome: DecodeWelcome(message); break;
    case Kind::kRequest: DecodeRequest(message); break;
    case Kind::kPiece: DecodePieceHeader(message); break;
    case Kind::kRefused: DecodeRefusal(message); break;
    case Kind::kPing:
    case Kind::kPong: DecodeBare(message); break;
  }
}

TEST(ZmqMessages, ThatAreDamagedAreCorruptAndNothingElse) {
  const std::vector<Region> regions(5, Region{1, 2, 3, 4, 5});
  const std::vector<std::vector<std::byte>> messages = {EncodeHello(),
                                                        EncodeWelcome(),
                                                        EncodeRequest(1, 2, regions),
                                                        EncodePieceHeader({1, 2, 3}),
                                                        EncodePing(),
                                                        EncodeRefusal({1, ErrorCode::kInvalidArgument, "no"})};
  std::mt19937 random(5);
  for (const auto& message : messages) {
    for (std::size_t size = 0; size < message.size(); ++size) {  // cut short: never whole
      const std::vector<std::byte> cut(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_THROW(DecodeAny(cut), Error);
    }
    std::vector<std::byte> longer = message;
    longer.push_back(std::byte{0});
    EXPECT_THROW(DecodeAny(longer), Error);
    for (int i = 0; i < 2000; ++i) {
      std::vector<std::byte> damaged = message;
      for (std::size_t hits = 1 + random() % 3; hits > 0; --hits) {
        damaged[random() % damaged.size()] = static_cast<std::byte>(random());
      }
      try {
        DecodeAny(damaged);  // may still make sense
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
      }
    }
  }
}

TEST(ZmqReplyPlan, SendsLongRunsInPlaceAndGathersTheRest) {
  std::vector<std::byte> memory(5 << 20);
  const std::byte* base = memory.data();
  const std::size_t mib = kPieceBytes;
  ReplyPlan plan({{base, 10, 3, 100}, {base, 2 * mib + mib / 2, 1, 0}, {base, 0, 7, 0}, {base, 5, 1, 5}});
  std::vector<std::byte> gathered(kPieceBytes);
  ReplyPlan::Next next = plan.Take();
  EXPECT_TRUE(next.in_place.empty());
  EXPECT_EQ(plan.Gather(gathered.data()), 30U);
  for (const std::size_t bytes : {mib, mib, mib / 2}) {
    EXPECT_FALSE(plan.done());
    next = plan.Take();
    EXPECT_EQ(next.in_place.size(), bytes);
  }
  EXPECT_EQ(next.in_place.data(), base + 2 * mib);
  EXPECT_EQ(next.offset, 30 + 2 * mib);
  EXPECT_TRUE(plan.Take().in_place.empty());
  EXPECT_EQ(plan.Gather(gathered.data()), 5U);
  EXPECT_TRUE(plan.done());
}

TEST(ZmqReplyPlan, AnEmptyChunkIsOneEmptyPiece) {
  ReplyPlan plan({{nullptr, 0, 5, 0}});
  EXPECT_FALSE(plan.done());
  EXPECT_TRUE(plan.Take().in_place.empty());
  EXPECT_EQ(plan.Gather(nullptr), 0U);
  EXPECT_TRUE(plan.done());
}

}  // namespace
}  // namespace layercast::zmq_channel
