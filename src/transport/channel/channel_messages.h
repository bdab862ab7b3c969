// The messages that the copying channels have in common: requests, refusals, pings. Each channel has a FORMAT.md with
// the whole of its protocol. The messages are values; their decoders trust nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/base/bytes/bytes.h"
#include "src/net/control_socket.h"
#include "src/tensor/region.h"

namespace layercast {

constexpr std::size_t kMaxRequestBytes = kMaxControlBytes;
constexpr std::size_t kMaxRequestsUnderWay = 256;
constexpr std::size_t kMaxRegionsUnderWay = std::size_t{1} << 18;

// The first byte of a message.
enum class Kind : std::uint8_t {
  kHello = 1,
  kRequest = 2,
  kPing = 3,
  kWelcome = 129,
  kPiece = 130,
  kPong = 131,
  kRefused = 132
};

// Every encoder and every decoder begins with one of these. The one that reads throws kCorrupt if the message is of
// another kind; `name` opens the messages of its errors.
ByteWriter OpenMessage(Kind kind);
ByteReader OpenMessage(std::span<const std::byte> message, Kind kind, std::string name);

struct Request {
  std::uint64_t ticket = 0;
  std::uint64_t offer_id = 0;
  std::vector<Region> regions;
};

struct Refusal {
  std::uint64_t ticket = 0;
  ErrorCode code = ErrorCode::kUnavailable;
  std::string message;
};

std::vector<std::byte> EncodePing();
std::vector<std::byte> EncodePong();
std::vector<std::byte> EncodeRequest(std::uint64_t ticket, std::uint64_t offer_id, std::span<const Region> regions);
// Writes kUnavailable for a code that the message does not have, and as much of the text as fits and is UTF-8.
std::vector<std::byte> EncodeRefusal(const Refusal& refusal);

// All throw kCorrupt on anything but a whole message of that kind and nothing after it.
Kind DecodeKind(std::span<const std::byte> message);
Request DecodeRequest(std::span<const std::byte> message);
Refusal DecodeRefusal(std::span<const std::byte> message);
// Throws the error that a REFUSED carries.
[[noreturn]] void ThrowRefusal(std::span<const std::byte> message);
void DecodeBare(std::span<const std::byte> message);  // PING, PONG: the kind alone

}  // namespace layercast
