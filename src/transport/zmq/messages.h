// The messages of the zmq channel, as FORMAT.md specifies them: values, their encoders, and decoders that trust
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/tensor/region.h"

namespace layercast::zmq_channel {

constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // bigger messages fault in fresh memory at the receiver
constexpr std::size_t kMaxRequestBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxRequestsUnderWay = 256;
constexpr std::size_t kMaxRegionsUnderWay = std::size_t{1} << 18;

enum class Kind : std::uint8_t {
  kHello = 1,
  kRequest = 2,
  kPing = 3,
  kWelcome = 129,
  kPiece = 130,
  kPong = 131,
  kRefused = 132
};

struct Request {
  std::uint64_t ticket = 0;
  std::uint64_t offer_id = 0;
  std::vector<Region> regions;
};

struct PieceHeader {
  std::uint64_t ticket = 0;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

struct Refusal {
  std::uint64_t ticket = 0;
  ErrorCode code = ErrorCode::kUnavailable;
  std::string message;
};

std::vector<std::byte> EncodeHello();
std::vector<std::byte> EncodeWelcome();
std::vector<std::byte> EncodePing();
std::vector<std::byte> EncodePong();
std::vector<std::byte> EncodeRequest(std::uint64_t ticket, std::uint64_t offer_id, std::span<const Region> regions);
std::vector<std::byte> EncodePieceHeader(const PieceHeader& header);
std::vector<std::byte> EncodeRefusal(const Refusal& refusal);

// All throw kCorrupt on anything but a whole message of that kind and nothing after it.
Kind DecodeKind(std::span<const std::byte> message);
std::uint16_t DecodeHello(std::span<const std::byte> message);  // the version
std::uint16_t DecodeWelcome(std::span<const std::byte> message);
Request DecodeRequest(std::span<const std::byte> message);
PieceHeader DecodePieceHeader(std::span<const std::byte> message);
Refusal DecodeRefusal(std::span<const std::byte> message);
void DecodeBare(std::span<const std::byte> message);  // PING, PONG: the kind alone

}  // namespace layercast::zmq_channel
