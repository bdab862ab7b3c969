// The messages that only the zmq channel has, as FORMAT.md specifies them; the rest is in
// src/transport/channel/channel_messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/transport/channel/channel_messages.h"

namespace layercast::zmq_channel {

constexpr std::uint16_t kVersion = 2;  // and the oldest that is spoken
constexpr std::string_view kMagic = "LCZQ";
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // for longer messages the receiver faults in fresh memory
constexpr std::size_t kMostMessageBytes = kPieceBytes + 4096;  // no message from a publisher is longer

struct Hello {
  static constexpr const char* kName = "HELLO";
  std::uint16_t version = kVersion;
};
void Fields(auto& archive, Is<Hello> auto& hello) {
  Begin(archive, Kind::kHello);
  Magic(archive, kMagic);
  archive.Number(hello.version, "version");
}

struct Welcome {
  static constexpr const char* kName = "WELCOME";
  std::uint16_t version = kVersion;
};
void Fields(auto& archive, Is<Welcome> auto& welcome) {
  Begin(archive, Kind::kWelcome);
  Magic(archive, kMagic);
  archive.Number(welcome.version, "version");
}

struct PieceHeader {
  static constexpr const char* kName = "PIECE";
  std::uint64_t ticket = 0;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};
void Fields(auto& archive, Is<PieceHeader> auto& header) {
  Begin(archive, Kind::kPiece);
  archive.Number(header.ticket, "ticket");
  archive.Number(header.offset, "offset");
  archive.Number(header.bytes, "bytes");
}

}  // namespace layercast::zmq_channel
