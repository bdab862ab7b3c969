// The messages of the nccl channel: what is written is read, what is damaged is refused.
#include "src/transport/nccl/wire/nccl_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "layercast/error.h"
#include "tests/support/error_of.h"
#include "tests/support/hex.h"
#include "tests/support/transport/damaged_messages.h"

namespace layercast::nccl_channel {
namespace {

Hello SomeHello() { return {kVersion, RandomToken(), 22809, RandomToken()}; }

Membership SomeMembership() {
  Membership membership{17, 65, 64, {}};
  std::fill(std::begin(membership.id.internal), std::end(membership.id.internal), 'x');
  return membership;
}

PieceGroup SomePieces() { return {true, {{7, 1ULL << 40, kPieceBytes}, {9, 0, 1}}}; }

TEST(NcclMessages, AreReadAsTheyWereWritten) {
  const Hello hello = SomeHello();
  const Hello read = Decode<Hello>(Encode(hello));
  EXPECT_EQ(read.version, kVersion);
  EXPECT_EQ(read.key, hello.key);
  EXPECT_EQ(read.nccl, 22809U);
  EXPECT_EQ(read.device, hello.device);
  EXPECT_EQ(Decode<Welcome>(Encode(Welcome{})).version, kVersion);
  const Membership membership = SomeMembership();
  const Membership member = Decode<Membership>(Encode(membership), "EPOCH");
  EXPECT_EQ(member.epoch, 17U);
  EXPECT_EQ(member.ranks, 65);
  EXPECT_EQ(member.rank, 64);
  EXPECT_EQ(std::memcmp(&member.id, &membership.id, sizeof(membership.id)), 0);
  const PieceGroup group = Decode<PieceGroup>(Encode(SomePieces()));
  EXPECT_TRUE(group.broadcast);
  ASSERT_EQ(group.pieces.size(), 2U);
  EXPECT_EQ(group.pieces[0].ticket, 7U);
  EXPECT_EQ(group.pieces[0].offset, 1ULL << 40);
  EXPECT_EQ(group.pieces[0].bytes, kPieceBytes);
  EXPECT_EQ(group.pieces[1].ticket, 9U);
  const Ready ready = Decode<Ready>(Encode(Ready{3, 4}));
  EXPECT_EQ(ready.epoch, 3U);
  EXPECT_EQ(ready.requests, 4U);
  EXPECT_EQ(Decode<OfEpoch>(Encode(OfEpoch{NcclKind::kCall, 3})).epoch, 3U);
}

Token TokenFrom(int first) {
  Token token;
  for (std::size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(static_cast<int>(i) + first);
  return token;
}

TEST(NcclMessages, HaveTheirExactBytes) {
  using test::Hex;
  EXPECT_EQ(Hex(Encode(Hello{kVersion, TokenFrom(1), 22809, TokenFrom(0x80)})),
            "014c434e4303000102030405060708090a0b0c0d0e0f1019590000808182838485868788898a8b8c8d8e8f");
  EXPECT_EQ(Hex(Encode(Welcome{})), "814c434e430300");
  EXPECT_EQ(Hex(Encode(SomePieces())),
            "82010207000000000000000000000000010000000000020900000000000000000000000000000001000000");
  EXPECT_EQ(Hex(Encode(SomeMembership())),
            "8611000000000000004140787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "787878787878787878787878787878787878787878787878787878787878787878");
  EXPECT_EQ(Hex(Encode(Ready{3, 4})), "05030000000000000004000000");
  EXPECT_EQ(Hex(Encode(OfEpoch{NcclKind::kCall, 3})), "850300000000000000");
  EXPECT_EQ(Hex(Encode(OfEpoch{NcclKind::kStands, 3})), "060300000000000000");
  EXPECT_EQ(Hex(Encode(OfEpoch{NcclKind::kFailed, 3})), "080300000000000000");
  EXPECT_EQ(Hex(Encode(BareOf(NcclKind::kGo))), "04");
  EXPECT_EQ(Hex(Encode(BareOf(NcclKind::kDone))), "07");
}

void DecodeAny(std::span<const std::byte> message) {
  switch (KindOf(message)) {
    case NcclKind::kHello: Decode<Hello>(message); break;
    case NcclKind::kPieces: Decode<PieceGroup>(message); break;
    case NcclKind::kEpoch: Decode<Membership>(message, "EPOCH"); break;
    case NcclKind::kReady: Decode<Ready>(message); break;
    default: Decode<OfEpoch>(message);
  }
}

TEST(NcclMessages, DamagedOnesAreRefused) {
  testing::ExpectDamagedOnesAreRefused({Encode(SomeHello()), Encode(SomePieces()), Encode(SomeMembership()),
                                        Encode(Ready{3, 4}), Encode(OfEpoch{NcclKind::kCall, 1})},
                                       DecodeAny);
}

TEST(NcclMessages, HaveBounds) {
  EXPECT_THROW(Decode<PieceGroup>(Encode(PieceGroup{false, {{1, 0, kPieceBytes + 1}}})), Error);
  EXPECT_THROW(Decode<PieceGroup>(Encode(PieceGroup{false, {}})), Error);
  EXPECT_THROW(Decode<PieceGroup>(Encode(PieceGroup{false, {{1, 0, 1}, {1, 1, 1}, {1, 2, 1}}})), Error);
  EXPECT_THROW(Decode<PieceGroup>(Encode(PieceGroup{false, {{1, 0, 1}, {1, 1, 0}}})), Error);
  EXPECT_THROW(Decode<Ready>(Encode(Ready{1, kMaxRequestsUnderWay + 1})), Error);
  for (const auto& [ranks, rank] : {std::pair{2, 0}, {2, 2}, {1, 1}, {66, 1}, {65, 65}}) {
    EXPECT_THROW(Decode<Membership>(Encode(Membership{1, ranks, rank, {}}), "EPOCH"), Error) << rank << " of " << ranks;
  }
}

TEST(NcclMessages, AnotherVersionIsNamed) {
  EXPECT_THAT(layercast::testing::ErrorOf([] { Decode<Welcome>(Encode(Welcome{1})); }, ErrorCode::kUnsupported),
              ::testing::HasSubstr("the publisher speaks version 1 of the nccl channel, expected 3"));
}

TEST(NcclMessages, ADeviceReadsAsItsDriverWritesIt) {
  DeviceUuid uuid;
  for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(i * 17);
  EXPECT_EQ(DeviceText(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

}  // namespace
}  // namespace layercast::nccl_channel
