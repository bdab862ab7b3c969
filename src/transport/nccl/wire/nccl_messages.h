// The messages that only the nccl channel has, as FORMAT.md specifies them; the rest is in
// src/transport/channel/channel_messages.h.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/device/channel_device.h"
#include "src/net/token.h"
#include "src/transport/channel/channel_messages.h"
#include "src/transport/nccl/wire/communicator.h"

namespace layercast::nccl_channel {

constexpr std::uint16_t kVersion = 3;
constexpr std::size_t kPieceBytes = std::size_t{32} << 20;  // at most; less would leave NVLink idle between groups
constexpr std::size_t kPiecesUnderWay = 4;                  // of one receiver: announced, and not yet through
constexpr std::size_t kPiecesInGroup = 2;                   // so that while one group is copied another is on its way
constexpr std::size_t kMaxFleet = 64;                       // receivers in an epoch

struct Hello {
  std::uint16_t version = kVersion;
  Token key{};  // the publisher's secret, from its address: it shows that the receiver was told that
  std::uint32_t nccl = 0;
  DeviceUuid device{};
};

struct Welcome {
  std::uint16_t version = kVersion;
};

// A receiver's answer to CALL: it has left its former epoch, and asks next for what it lacks.
struct Ready {
  std::uint64_t epoch = 0;
  std::uint32_t requests = 0;  // how many requests follow
};

// Announces the next piece of a chunk: `bytes` from `offset` on, which wait in one of the publisher's slots.
struct Piece {
  std::uint64_t ticket = 0;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

// The pieces that go to a receiver next, in one NCCL group.
struct PieceGroup {
  bool broadcast = false;  // to all of the epoch; else to this receiver alone
  std::vector<Piece> pieces;
};

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

std::vector<std::byte> EncodeHello(const Hello& hello);
std::vector<std::byte> EncodeWelcome(const Welcome& welcome);
std::vector<std::byte> EncodePieces(const PieceGroup& group);
std::vector<std::byte> EncodeEpoch(const Membership& membership);
std::vector<std::byte> EncodeReady(const Ready& ready);
// EncodeNumber is for STANDS, FAILED and CALL, which have an epoch's number; EncodeBare for GO and DONE, which have
// nothing.
std::vector<std::byte> EncodeNumber(NcclKind kind, std::uint64_t number);
std::vector<std::byte> EncodeBare(NcclKind kind);

// Throws kUnsupported, naming both versions, unless `version` is kVersion: there is no older one to fall back to.
void ExpectVersion(std::uint16_t version, const char* whose);

NcclKind KindOf(std::span<const std::byte> message);
// All throw kCorrupt on anything but a whole message of that kind and nothing after it; DecodeWelcome also what
// ExpectVersion throws. HELLO reads the same in every version, so that a publisher can say which it expects.
Hello DecodeHello(std::span<const std::byte> message);
Welcome DecodeWelcome(std::span<const std::byte> message);
PieceGroup DecodePieces(std::span<const std::byte> message);
Ready DecodeReady(std::span<const std::byte> message);
Membership DecodeEpoch(std::span<const std::byte> message);
std::uint64_t DecodeNumber(std::span<const std::byte> message, NcclKind kind);

// "GPU-00112233-4455-6677-8899-aabbccddeeff", as nvidia-smi has it.
std::string DeviceText(const DeviceUuid& uuid);

}  // namespace layercast::nccl_channel
