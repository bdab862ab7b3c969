// The messages that only the nccl channel has, as FORMAT.md specifies them; the rest is in src/transport/messages.h.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/transport/device/staging.h"
#include "src/transport/messages.h"
#include "src/transport/token.h"

namespace layercast::nccl_channel {

constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::size_t kPiecesUnderWay = 4;  // announced, and not yet taken by the receiver

struct Hello {
  std::uint16_t version = kVersion;
  Token key{};  // the publisher's, from its address: whoever has it was told the address
  std::uint32_t nccl = 0;
  DeviceUuid device{};
};

struct Welcome {
  std::uint16_t version = kVersion;
  std::uint64_t epoch = 0;  // of the publisher's communicators: one for each connection
  ncclUniqueId id{};
};

// The next piece that waits in the publisher's staging memory: so many bytes of a chunk, from that offset on.
struct Piece {
  std::uint64_t ticket = 0;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

constexpr Kind kGo = static_cast<Kind>(4);

std::vector<std::byte> EncodeHello(const Hello& hello);
std::vector<std::byte> EncodeWelcome(const Welcome& welcome);
std::vector<std::byte> EncodePiece(const Piece& piece);
// The receiver takes the next `pieces` of those that were announced, in one group.
std::vector<std::byte> EncodeGo(std::size_t pieces);

// All throw kCorrupt on anything but a whole message of that kind and nothing after it.
Hello DecodeHello(std::span<const std::byte> message);
Welcome DecodeWelcome(std::span<const std::byte> message);
Piece DecodePiece(std::span<const std::byte> message);
std::size_t DecodeGo(std::span<const std::byte> message);

// "GPU-00112233-4455-6677-8899-aabbccddeeff", as nvidia-smi has it.
std::string DeviceText(const DeviceUuid& uuid);

}  // namespace layercast::nccl_channel
