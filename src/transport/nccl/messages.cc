#include "src/transport/nccl/messages.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "src/base/bytes.h"

namespace layercast::nccl_channel {
namespace {

constexpr std::string_view kMagic = "LCNC";

void PutRaw(ByteWriter& writer, std::span<const std::byte> bytes) {
  writer.PutBytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

template <std::size_t kSize>
std::array<std::byte, kSize> GetRaw(ByteReader& reader, std::string_view field) {
  std::array<std::byte, kSize> bytes;
  std::ranges::copy(reader.GetBytes(kSize, field), bytes.begin());
  return bytes;
}

ByteWriter OpenGreeting(Kind kind, std::uint16_t version) {
  ByteWriter writer = OpenMessage(kind);
  writer.PutBytes(kMagic);
  writer.Put(version);
  return writer;
}

std::uint16_t GetMagicAndVersion(ByteReader& reader) {
  if (reader.GetText(kMagic.size(), "magic") != kMagic) reader.Fail("not the magic 'LCNC'");
  const auto version = reader.Get<std::uint16_t>("version");
  if (version == 0) reader.Fail("version 0");
  return version;
}

}  // namespace

std::vector<std::byte> EncodeHello(const Hello& hello) {
  ByteWriter writer = OpenGreeting(Kind::kHello, hello.version);
  PutRaw(writer, hello.key);
  writer.Put(hello.nccl);
  PutRaw(writer, hello.device);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeWelcome(const Welcome& welcome) {
  ByteWriter writer = OpenGreeting(Kind::kWelcome, welcome.version);
  writer.Put(welcome.epoch);
  writer.PutBytes({welcome.id.internal, sizeof(welcome.id.internal)});
  return std::move(writer).Take();
}

std::vector<std::byte> EncodePiece(const Piece& piece) {
  ByteWriter writer = OpenMessage(Kind::kPiece);
  writer.Put(piece.ticket);
  writer.Put(piece.offset);
  writer.Put(piece.bytes);
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeGo(std::size_t pieces) {
  ByteWriter writer = OpenMessage(kGo);
  writer.Put(static_cast<std::uint8_t>(pieces));
  return std::move(writer).Take();
}

Hello DecodeHello(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kHello, "HELLO");
  Hello hello;
  hello.version = GetMagicAndVersion(reader);
  hello.key = GetRaw<16>(reader, "key");
  hello.nccl = reader.Get<std::uint32_t>("version of NCCL");
  hello.device = GetRaw<16>(reader, "device");
  reader.ExpectEnd();
  return hello;
}

Welcome DecodeWelcome(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kWelcome, "WELCOME");
  Welcome welcome;
  welcome.version = GetMagicAndVersion(reader);
  welcome.epoch = reader.Get<std::uint64_t>("epoch");
  const std::string id = reader.GetText(sizeof(welcome.id.internal), "unique identifier");
  std::memcpy(welcome.id.internal, id.data(), id.size());
  reader.ExpectEnd();
  return welcome;
}

Piece DecodePiece(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kPiece, "PIECE");
  Piece piece;
  piece.ticket = reader.Get<std::uint64_t>("ticket");
  piece.offset = reader.Get<std::uint64_t>("offset");
  piece.bytes = reader.Get<std::uint32_t>("bytes");
  if (piece.bytes > kPieceBytes) reader.Fail("a piece of " + std::to_string(piece.bytes) + " bytes");
  reader.ExpectEnd();
  return piece;
}

std::size_t DecodeGo(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, kGo, "GO");
  const auto pieces = reader.Get<std::uint8_t>("pieces");
  if (pieces == 0 || pieces > kPiecesUnderWay) reader.Fail(std::to_string(pieces) + " pieces");
  reader.ExpectEnd();
  return pieces;
}

std::string DeviceText(const DeviceUuid& uuid) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[std::to_integer<unsigned>(uuid[i]) >> 4];
    text += digits[std::to_integer<unsigned>(uuid[i]) & 15];
  }
  return text;
}

}  // namespace layercast::nccl_channel
