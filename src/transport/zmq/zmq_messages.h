// The messages that only the zmq channel has, as FORMAT.md specifies them; the rest is in
// src/transport/channel/channel_messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/transport/channel/channel_messages.h"

namespace layercast::zmq_channel {

constexpr std::uint16_t kVersion = 2;                      // and the oldest that is spoken
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // for longer messages the receiver faults in fresh memory
constexpr std::size_t kMostMessageBytes = kPieceBytes + 4096;  // no message from a publisher is longer

struct PieceHeader {
  std::uint64_t ticket = 0;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

std::vector<std::byte> EncodeHello();
std::vector<std::byte> EncodeWelcome();
std::vector<std::byte> EncodePieceHeader(const PieceHeader& header);

// All throw kCorrupt on anything but a whole message of that kind and nothing after it.
std::uint16_t DecodeHello(std::span<const std::byte> message);  // the version
std::uint16_t DecodeWelcome(std::span<const std::byte> message);
PieceHeader DecodePieceHeader(std::span<const std::byte> message);

}  // namespace layercast::zmq_channel
