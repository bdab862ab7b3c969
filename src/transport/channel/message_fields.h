// Fields that the messages of several channels have in common: the beginning of a greeting, flags, bytes of a fixed
// size, and messages that consist of a ticket. Used by the encoders and decoders of ucx, cuda_ipc and nccl.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/bytes/bytes.h"
#include "src/transport/channel/channel_messages.h"

namespace layercast {

// Writes what follows the kind in HELLO and WELCOME.
inline void PutGreeting(ByteWriter& writer, std::string_view magic, std::uint16_t version) {
  writer.PutBytes(magic);
  writer.Put(version);
}
// Reads what PutGreeting has written, and returns the version. Throws kCorrupt, as all functions here that read.
inline std::uint16_t GetGreeting(ByteReader& reader, std::string_view magic) {
  if (reader.GetText(magic.size(), "magic") != magic) reader.Fail("not the magic '" + std::string(magic) + "'");
  const auto version = reader.Get<std::uint16_t>("version");
  if (version == 0) reader.Fail("version 0");
  return version;
}

inline void PutFlag(ByteWriter& writer, bool flag) { writer.Put(static_cast<std::uint8_t>(flag ? 1 : 0)); }
inline bool GetFlag(ByteReader& reader, std::string_view field) {
  const auto flag = reader.Get<std::uint8_t>(field);
  if (flag > 1) reader.Fail(std::string(field) + ": " + std::to_string(flag));
  return flag == 1;
}

inline void PutRaw(ByteWriter& writer, std::span<const std::byte> bytes) {
  writer.PutBytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}
template <std::size_t kSize>
std::array<std::byte, kSize> GetRaw(ByteReader& reader, std::string_view field) {
  std::array<std::byte, kSize> bytes;
  std::ranges::copy(reader.GetBytes(kSize, field), bytes.begin());
  return bytes;
}

inline std::vector<std::byte> EncodeTicket(Kind kind, std::uint64_t ticket) {
  ByteWriter writer = OpenMessage(kind);
  writer.Put(ticket);
  return std::move(writer).Take();
}
// `name` opens the messages of its errors.
inline std::uint64_t DecodeTicket(std::span<const std::byte> message, Kind kind, std::string name) {
  ByteReader reader = OpenMessage(message, kind, std::move(name));
  const auto ticket = reader.Get<std::uint64_t>("ticket");
  reader.ExpectEnd();
  return ticket;
}

}  // namespace layercast
