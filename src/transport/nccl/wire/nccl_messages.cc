#include "src/transport/nccl/wire/nccl_messages.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/bytes.h"
#include "src/transport/channel/message_fields.h"

namespace layercast::nccl_channel {
namespace {

constexpr std::string_view kMagic = "LCNC";

ByteWriter Open(NcclKind kind) { return OpenMessage(static_cast<Kind>(kind)); }
ByteReader Open(std::span<const std::byte> message, NcclKind kind, std::string name) {
  return OpenMessage(message, static_cast<Kind>(kind), std::move(name));
}

// Reads a rank, or a number of ranks, which is no larger than a fleet can have.
int GetRank(ByteReader& reader, std::string_view field) {
  const auto rank = reader.Get<std::uint8_t>(field);
  if (rank > kMaxFleet + 1) reader.Fail(std::string(field) + " " + std::to_string(rank));
  return rank;
}

}  // namespace

std::vector<std::byte> EncodeHello(const Hello& hello) {
  ByteWriter writer = Open(NcclKind::kHello);
  PutGreeting(writer, kMagic, hello.version);
  PutRaw(writer, hello.key);
  writer.Put(hello.nccl);
  PutRaw(writer, hello.device);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeWelcome(const Welcome& welcome) {
  ByteWriter writer = Open(NcclKind::kWelcome);
  PutGreeting(writer, kMagic, welcome.version);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodePieces(const PieceGroup& group) {
  ByteWriter writer = Open(NcclKind::kPieces);
  PutFlag(writer, group.broadcast);
  writer.Put(static_cast<std::uint8_t>(group.pieces.size()));
  for (const Piece& piece : group.pieces) {
    writer.Put(piece.ticket);
    writer.Put(piece.offset);
    writer.Put(piece.bytes);
  }
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeEpoch(const Membership& membership) {
  ByteWriter writer = Open(NcclKind::kEpoch);
  writer.Put(membership.epoch);
  writer.Put(static_cast<std::uint8_t>(membership.ranks));
  writer.Put(static_cast<std::uint8_t>(membership.rank));
  writer.PutBytes({membership.id.internal, sizeof(membership.id.internal)});
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeReady(const Ready& ready) {
  ByteWriter writer = Open(NcclKind::kReady);
  writer.Put(ready.epoch);
  writer.Put(ready.requests);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeNumber(NcclKind kind, std::uint64_t number) {
  ByteWriter writer = Open(kind);
  writer.Put(number);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeBare(NcclKind kind) { return Open(kind).Take(); }

NcclKind KindOf(std::span<const std::byte> message) { return static_cast<NcclKind>(DecodeKind(message)); }

void ExpectVersion(std::uint16_t version, const char* whose) {
  if (version == kVersion) return;
  throw Error(ErrorCode::kUnsupported, "the " + std::string(whose) + " speaks version " + std::to_string(version) +
                                           " of the nccl channel, expected " + std::to_string(kVersion));
}

Hello DecodeHello(std::span<const std::byte> message) {
  ByteReader reader = Open(message, NcclKind::kHello, "HELLO");
  Hello hello;
  hello.version = GetGreeting(reader, kMagic);
  hello.key = GetRaw<16>(reader, "key");
  hello.nccl = reader.Get<std::uint32_t>("version of NCCL");
  hello.device = GetRaw<16>(reader, "device");
  reader.ExpectEnd();
  return hello;
}

Welcome DecodeWelcome(std::span<const std::byte> message) {
  ByteReader reader = Open(message, NcclKind::kWelcome, "WELCOME");
  const Welcome welcome{GetGreeting(reader, kMagic)};
  ExpectVersion(welcome.version, "publisher");
  reader.ExpectEnd();
  return welcome;
}

PieceGroup DecodePieces(std::span<const std::byte> message) {
  ByteReader reader = Open(message, NcclKind::kPieces, "PIECES");
  PieceGroup group;
  group.broadcast = GetFlag(reader, "how");
  group.pieces.resize(reader.Get<std::uint8_t>("number of pieces"));
  if (group.pieces.empty() || group.pieces.size() > kPiecesInGroup) {
    reader.Fail(std::to_string(group.pieces.size()) + " pieces");
  }
  for (Piece& piece : group.pieces) {
    piece.ticket = reader.Get<std::uint64_t>("ticket");
    piece.offset = reader.Get<std::uint64_t>("offset");
    piece.bytes = reader.Get<std::uint32_t>("bytes");
    if (piece.bytes > kPieceBytes) reader.Fail("a piece of " + std::to_string(piece.bytes) + " bytes");
    if (piece.bytes == 0 && group.pieces.size() != 1) reader.Fail("a piece of nothing among others");
  }
  reader.ExpectEnd();
  return group;
}

Membership DecodeEpoch(std::span<const std::byte> message) {
  ByteReader reader = Open(message, NcclKind::kEpoch, "EPOCH");
  Membership membership;
  membership.epoch = reader.Get<std::uint64_t>("epoch");
  membership.ranks = GetRank(reader, "ranks");
  membership.rank = GetRank(reader, "rank");
  if (membership.rank == kPublisherRank || membership.rank >= membership.ranks) {
    reader.Fail("rank " + std::to_string(membership.rank) + " of " + std::to_string(membership.ranks));
  }
  const std::string id = reader.GetText(sizeof(membership.id.internal), "unique identifier");
  std::memcpy(membership.id.internal, id.data(), id.size());
  reader.ExpectEnd();
  return membership;
}

Ready DecodeReady(std::span<const std::byte> message) {
  ByteReader reader = Open(message, NcclKind::kReady, "READY");
  Ready ready;
  ready.epoch = reader.Get<std::uint64_t>("epoch");
  ready.requests = reader.Get<std::uint32_t>("number of requests");
  if (ready.requests > kMaxRequestsUnderWay) reader.Fail(std::to_string(ready.requests) + " requests");
  reader.ExpectEnd();
  return ready;
}

std::uint64_t DecodeNumber(std::span<const std::byte> message, NcclKind kind) {
  ByteReader reader = Open(message, kind, "message");
  const auto number = reader.Get<std::uint64_t>("number");
  reader.ExpectEnd();
  return number;
}

std::string DeviceText(const DeviceUuid& uuid) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[std::to_integer<unsigned>(uuid[i]) >> 4];
    text += digits[std::to_integer<unsigned>(uuid[i]) & 15];
  }
  return text;
}

}  // namespace layercast::nccl_channel
