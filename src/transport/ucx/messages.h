// The messages that only the ucx channel has, as FORMAT.md specifies them; the rest is in src/transport/messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/transport/channel.h"
#include "src/transport/messages.h"
#include "src/transport/token.h"

namespace layercast::ucx_channel {

constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxAddressBytes = 4096;  // of a UCX worker; 46 bytes over shared memory, 50 over TCP

// What the two ends of a connection reach each other by.
enum class Lanes : std::uint8_t { kSharedMemory = 1, kNetwork = 2 };

struct Hello {
  std::uint16_t version = kVersion;
  Token key{};        // the publisher's, from its address: whoever has it was told the address
  HostIdentity host;  // empty where memory must not be shared
};

struct Welcome {
  std::uint16_t version = kVersion;
  Lanes lanes = Lanes::kNetwork;
  Token token{};                   // of this connection; opens every active message
  std::vector<std::byte> address;  // of the publisher's worker
};

// The header of an active message.
struct ActiveHeader {
  Kind kind = Kind::kPiece;  // or kPong
  Token token{};
  std::uint64_t ticket = 0;  // of a piece
  std::uint64_t offset = 0;
};

constexpr Kind kAddress = static_cast<Kind>(4);

std::vector<std::byte> EncodeHello(const Hello& hello);
std::vector<std::byte> EncodeWelcome(const Welcome& welcome);
std::vector<std::byte> EncodeAddress(std::span<const std::byte> address);
std::vector<std::byte> EncodeActiveHeader(const ActiveHeader& header);

// All throw kCorrupt on anything but a whole message of that kind and nothing after it.
Hello DecodeHello(std::span<const std::byte> message);
Welcome DecodeWelcome(std::span<const std::byte> message);
std::vector<std::byte> DecodeAddress(std::span<const std::byte> message);
ActiveHeader DecodeActiveHeader(std::span<const std::byte> header);

}  // namespace layercast::ucx_channel
