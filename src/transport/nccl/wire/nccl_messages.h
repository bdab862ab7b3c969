// The messages that only the nccl channel has, as FORMAT.md specifies them; the rest is in
// src/transport/channel/channel_messages.h.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/device/channel_device.h"
#include "src/net/token.h"
#include "src/transport/channel/channel_messages.h"
#include "src/transport/nccl/wire/communicator.h"

namespace layercast::nccl_channel {

constexpr std::uint16_t kVersion = 3;
constexpr std::string_view kMagic = "LCNC";
constexpr std::size_t kPieceBytes = std::size_t{32} << 20;  // at most; less would leave NVLink idle between groups
constexpr std::size_t kPiecesUnderWay = 4;                  // of one receiver: announced, and not yet through
constexpr std::size_t kPiecesInGroup = 2;                   // so that while one group is copied another is on its way
constexpr std::size_t kMaxFleet = 64;                       // receivers in an epoch

// The first byte of a message. Includes the kinds that this channel has in common with others (Kind).
enum class NcclKind : std::uint8_t {
  kHello = 1,
  kRequest = 2,
  kPing = 3,
  kGo = 4,
  kReady = 5,
  kStands = 6,
  kDone = 7,
  kFailed = 8,
  kWelcome = 129,
  kPieces = 130,
  kPong = 131,
  kRefused = 132,
  kCall = 133,
  kEpoch = 134
};

NcclKind KindOf(std::span<const std::byte> message);
inline Bare BareOf(NcclKind kind) { return {static_cast<Kind>(kind)}; }  // GO, DONE

// Throws kUnsupported, naming both versions, unless `version` is kVersion: there is no older one to fall back to.
void ExpectVersion(std::uint16_t version, const char* whose);

// Reads the same in every version, so that a publisher can say which it expects.
struct Hello {
  static constexpr const char* kName = "HELLO";
  std::uint16_t version = kVersion;
  Token key{};  // the publisher's secret, from its address: it shows that the receiver was told that
  std::uint32_t nccl = 0;
  DeviceUuid device{};
};
void Fields(auto& archive, Is<Hello> auto& hello) {
  Begin(archive, NcclKind::kHello);
  Greeting(archive, kMagic, hello.version);
  archive.Array(hello.key, "key");
  archive.Number(hello.nccl, "version of NCCL");
  archive.Array(hello.device, "device");
}

// Reading it also throws what ExpectVersion throws.
struct Welcome {
  static constexpr const char* kName = "WELCOME";
  std::uint16_t version = kVersion;
};
void Fields(auto& archive, Is<Welcome> auto& welcome) {
  Begin(archive, NcclKind::kWelcome);
  Greeting(archive, kMagic, welcome.version);
  if (archive.kReads) ExpectVersion(welcome.version, "publisher");
}

// Announces the next piece of a chunk: `bytes` from `offset` on, which wait in one of the publisher's slots.
struct Piece {
  std::uint64_t ticket = 0;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

// The pieces that go to a receiver next, in one NCCL group.
struct PieceGroup {
  static constexpr const char* kName = "PIECES";
  bool broadcast = false;  // to all of the epoch; else to this receiver alone
  std::vector<Piece> pieces;
};
void Fields(auto& archive, Is<PieceGroup> auto& group) {
  Begin(archive, NcclKind::kPieces);
  Flag(archive, group.broadcast, "how");
  const std::size_t count = Count<std::uint8_t>(archive, group.pieces, "number of pieces");
  if (count == 0 || count > kPiecesInGroup) archive.Refuse(std::to_string(count) + " pieces");
  Each(archive, group.pieces, count, [&](auto& piece) {
    archive.Number(piece.ticket, "ticket");
    archive.Number(piece.offset, "offset");
    archive.Number(piece.bytes, "bytes");
    if (piece.bytes > kPieceBytes) archive.Refuse("a piece of " + std::to_string(piece.bytes) + " bytes");
    if (piece.bytes == 0 && count != 1) archive.Refuse("a piece of nothing among others");
  });
}

// A rank, or a number of ranks, which is no larger than a fleet can have.
void Rank(auto& archive, auto& rank, std::string_view field) {
  As<std::uint8_t>(archive, rank, field);
  if (rank > static_cast<int>(kMaxFleet) + 1) archive.Refuse(std::string(field) + " " + std::to_string(rank));
}

void Fields(auto& archive, Is<Membership> auto& membership) {
  Begin(archive, NcclKind::kEpoch);
  archive.Number(membership.epoch, "epoch");
  Rank(archive, membership.ranks, "ranks");
  Rank(archive, membership.rank, "rank");
  if (membership.rank == kPublisherRank || membership.rank >= membership.ranks) {
    archive.Refuse("rank " + std::to_string(membership.rank) + " of " + std::to_string(membership.ranks));
  }
  archive.Array(membership.id.internal, "unique identifier");
}

// A receiver's answer to CALL: it has left its former epoch, and asks next for what it lacks.
struct Ready {
  static constexpr const char* kName = "READY";
  std::uint64_t epoch = 0;
  std::uint32_t requests = 0;  // how many requests follow
};
void Fields(auto& archive, Is<Ready> auto& ready) {
  Begin(archive, NcclKind::kReady);
  archive.Number(ready.epoch, "epoch");
  archive.Number(ready.requests, "number of requests");
  if (ready.requests > kMaxRequestsUnderWay) archive.Refuse(std::to_string(ready.requests) + " requests");
}

// STANDS, FAILED and CALL.
struct OfEpoch {
  static constexpr const char* kName = "message";
  NcclKind kind = NcclKind::kCall;
  std::uint64_t epoch = 0;
};
void Fields(auto& archive, Is<OfEpoch> auto& message) {
  As<std::uint8_t>(archive, message.kind, "kind");
  archive.Number(message.epoch, "number");
}

// "GPU-00112233-4455-6677-8899-aabbccddeeff", as nvidia-smi has it.
std::string DeviceText(const DeviceUuid& uuid);

}  // namespace layercast::nccl_channel
