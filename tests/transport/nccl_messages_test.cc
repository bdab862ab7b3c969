// The messages of the nccl channel: what is written is read, what is damaged is refused.
#include "src/transport/nccl/messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "layercast/error.h"
#include "tests/transport/damaged_messages.h"

namespace layercast::nccl_channel {
namespace {

Hello SomeHello() { return {kVersion, RandomToken(), 22809, RandomToken()}; }

Welcome SomeWelcome() {
  Welcome welcome{kVersion, 17, {}};
  std::fill(std::begin(welcome.id.internal), std::end(welcome.id.internal), 'x');
  return welcome;
}

TEST(NcclMessages, AreReadAsTheyWereWritten) {
  const Hello hello = SomeHello();
  const Hello read = DecodeHello(EncodeHello(hello));
  EXPECT_EQ(read.version, kVersion);
  EXPECT_EQ(read.key, hello.key);
  EXPECT_EQ(read.nccl, 22809U);
  EXPECT_EQ(read.device, hello.device);
  const Welcome welcome = SomeWelcome();
  const Welcome welcomed = DecodeWelcome(EncodeWelcome(welcome));
  EXPECT_EQ(welcomed.epoch, 17U);
  EXPECT_EQ(std::memcmp(&welcomed.id, &welcome.id, sizeof(welcome.id)), 0);
  const Piece piece = DecodePiece(EncodePiece({7, 1ULL << 40, kPieceBytes}));
  EXPECT_EQ(piece.ticket, 7U);
  EXPECT_EQ(piece.offset, 1ULL << 40);
  EXPECT_EQ(piece.bytes, kPieceBytes);
  EXPECT_EQ(DecodeGo(EncodeGo(3)), 3U);
}

void DecodeAny(std::span<const std::byte> message) {
  switch (static_cast<int>(DecodeKind(message))) {
    case static_cast<int>(Kind::kHello): DecodeHello(message); break;
    case static_cast<int>(Kind::kWelcome): DecodeWelcome(message); break;
    case static_cast<int>(Kind::kPiece): DecodePiece(message); break;
    default: DecodeGo(message);
  }
}

TEST(NcclMessages, DamagedOnesAreRefused) {
  testing::ExpectDamagedOnesAreRefused(
      {EncodeHello(SomeHello()), EncodeWelcome(SomeWelcome()), EncodePiece({1, 2, 3}), EncodeGo(1)}, DecodeAny);
}

TEST(NcclMessages, HaveBounds) {
  EXPECT_THROW(DecodePiece(EncodePiece({1, 0, kPieceBytes + 1})), Error);
  EXPECT_THROW(DecodeGo(EncodeGo(0)), Error);
  EXPECT_THROW(DecodeGo(EncodeGo(kPiecesUnderWay + 1)), Error);
}

TEST(NcclMessages, ADeviceReadsAsItsDriverWritesIt) {
  DeviceUuid uuid;
  for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(i * 17);
  EXPECT_EQ(DeviceText(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

}  // namespace
}  // namespace layercast::nccl_channel
