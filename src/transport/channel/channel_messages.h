// The messages that the copying channels have in common: requests, refusals, pings; and what begins those of each. Each
// channel has a FORMAT.md with the whole of its protocol. A message is a value with a name, which opens the errors of
// whoever reads it, and its Fields (src/base/bytes/archive.h), which begin with its kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/base/bytes/archive.h"
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

Kind DecodeKind(std::span<const std::byte> message);

// ---- fields that several messages have ------------------------------------------------------------------------------

// The kind of a message that is of no other.
void Begin(auto& archive, auto kind) {
  auto got = static_cast<std::uint8_t>(kind);
  archive.Number(got, "kind");
  if (got != static_cast<std::uint8_t>(kind)) archive.Refuse("kind " + std::to_string(got));
}

void Magic(auto& archive, std::string_view magic) {
  std::string got(magic);
  archive.Bytes(got, magic.size(), "magic");
  if (got != magic) archive.Refuse("not the magic '" + std::string(magic) + "'");
}

// What follows the kind in HELLO and WELCOME.
void Greeting(auto& archive, std::string_view magic, auto& version) {
  Magic(archive, magic);
  archive.Number(version, "version");
  if (version == 0) archive.Refuse("version 0");
}

void Flag(auto& archive, auto& flag, std::string_view field) {
  std::uint8_t byte = flag ? 1 : 0;
  archive.Number(byte, field);
  if (byte > 1) archive.Refuse(std::string(field) + ": " + std::to_string(byte));
  archive.Set(flag, byte == 1);
}

// Items behind their number, of `item_bytes` each: they take all the rest.
void Rest(auto& archive, auto& items, std::size_t item_bytes, const std::string& what, const auto& visit) {
  const std::size_t count = Count<std::uint32_t>(archive, items, "number of " + what);
  if (archive.kReads && archive.remaining() != count * item_bytes) {
    archive.Refuse(std::to_string(count) + " " + what + " do not fill the rest");
  }
  Each(archive, items, count, visit);
}

// ---- messages -------------------------------------------------------------------------------------------------------

// A message that is its kind alone: PING, PONG.
struct Bare {
  static constexpr const char* kName = "message";
  Kind kind = Kind::kPing;
};
void Fields(auto& archive, Is<Bare> auto& bare) { As<std::uint8_t>(archive, bare.kind, "kind"); }

struct Request {
  static constexpr const char* kName = "REQUEST";
  std::uint64_t ticket = 0;
  std::uint64_t offer_id = 0;
  std::vector<Region> regions;
};
void Fields(auto& archive, Is<Request> auto& request) {
  constexpr std::size_t region_bytes = 4 + 4 * 8;
  Begin(archive, Kind::kRequest);
  archive.Number(request.ticket, "ticket");
  archive.Number(request.offer_id, "offer");
  Rest(archive, request.regions, region_bytes, "regions", [&](auto& region) {
    archive.Number(region.tensor, "tensor");
    archive.Number(region.offset, "offset");
    archive.Number(region.row_bytes, "row bytes");
    archive.Number(region.rows, "rows");
    archive.Number(region.stride, "stride");
  });
}

// Written is kUnavailable for a code that the message does not have, and as much of the text as fits and is UTF-8.
struct Refusal {
  static constexpr const char* kName = "REFUSED";
  std::uint64_t ticket = 0;
  ErrorCode code = ErrorCode::kUnavailable;
  std::string message;
};
void Fields(auto& archive, Is<Refusal> auto& refusal);
// Throws the error that a REFUSED carries.
[[noreturn]] void ThrowRefusal(std::span<const std::byte> message);

}  // namespace layercast
