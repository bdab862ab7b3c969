#include "src/transport/zmq/zmq_messages.h"

#include <string_view>
#include <utility>

namespace layercast::zmq_channel {
namespace {

constexpr std::string_view kMagic = "LCZQ";

std::vector<std::byte> EncodeGreeting(Kind kind) {
  ByteWriter writer = OpenMessage(kind);
  writer.PutBytes(kMagic);
  writer.Put(kVersion);
  return std::move(writer).Take();
}

std::uint16_t DecodeGreeting(std::span<const std::byte> message, Kind kind, const char* name) {
  ByteReader reader = OpenMessage(message, kind, name);
  if (reader.GetText(kMagic.size(), "magic") != kMagic) reader.Fail("not the magic 'LCZQ'");
  const auto version = reader.Get<std::uint16_t>("version");
  reader.ExpectEnd();
  return version;
}

}  // namespace

std::vector<std::byte> EncodeHello() { return EncodeGreeting(Kind::kHello); }
std::vector<std::byte> EncodeWelcome() { return EncodeGreeting(Kind::kWelcome); }

std::vector<std::byte> EncodePieceHeader(const PieceHeader& header) {
  ByteWriter writer = OpenMessage(Kind::kPiece);
  writer.Put(header.ticket);
  writer.Put(header.offset);
  writer.Put(header.bytes);
  return std::move(writer).Take();
}

std::uint16_t DecodeHello(std::span<const std::byte> message) { return DecodeGreeting(message, Kind::kHello, "HELLO"); }
std::uint16_t DecodeWelcome(std::span<const std::byte> message) {
  return DecodeGreeting(message, Kind::kWelcome, "WELCOME");
}

PieceHeader DecodePieceHeader(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kPiece, "PIECE");
  PieceHeader header;
  header.ticket = reader.Get<std::uint64_t>("ticket");
  header.offset = reader.Get<std::uint64_t>("offset");
  header.bytes = reader.Get<std::uint32_t>("bytes");
  reader.ExpectEnd();
  return header;
}

}  // namespace layercast::zmq_channel
