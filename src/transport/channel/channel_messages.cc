#include "src/transport/channel/channel_messages.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "src/base/bytes/bytes.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::size_t kRegionBytes = 4 + 4 * 8;

// What the codes of REFUSED mean, from code 1 on. The last one stands for all others.
constexpr std::array kCodes{ErrorCode::kNotFound, ErrorCode::kInvalidArgument, ErrorCode::kResourceExhausted,
                            ErrorCode::kUnsupported, ErrorCode::kUnavailable};
constexpr std::size_t kMostText = 1000;  // bytes

// As much of the text as fits into a message and is UTF-8.
std::string_view WhatFits(std::string_view text) {
  text = text.substr(0, kMostText);
  return text.substr(0, FindInvalidUtf8(text).value_or(text.size()));
}

}  // namespace

ByteWriter OpenMessage(Kind kind) {
  ByteWriter writer;
  writer.Put(static_cast<std::uint8_t>(kind));
  return writer;
}

ByteReader OpenMessage(std::span<const std::byte> message, Kind kind, std::string name) {
  ByteReader reader(std::move(name), message);
  const auto got = reader.Get<std::uint8_t>("kind");
  if (got != static_cast<std::uint8_t>(kind)) reader.Fail("kind " + std::to_string(got));
  return reader;
}

std::vector<std::byte> EncodePing() { return OpenMessage(Kind::kPing).Take(); }
std::vector<std::byte> EncodePong() { return OpenMessage(Kind::kPong).Take(); }

std::vector<std::byte> EncodeRequest(std::uint64_t ticket, std::uint64_t offer_id, std::span<const Region> regions) {
  ByteWriter writer = OpenMessage(Kind::kRequest);
  writer.Reserve(1 + 8 + 8 + 4 + regions.size() * kRegionBytes);
  writer.Put(ticket);
  writer.Put(offer_id);
  writer.Put(static_cast<std::uint32_t>(regions.size()));
  for (const Region& region : regions) {
    writer.Put(region.tensor);
    writer.Put(region.offset);
    writer.Put(region.row_bytes);
    writer.Put(region.rows);
    writer.Put(region.stride);
  }
  return std::move(writer).Take();
}

std::vector<std::byte> EncodeRefusal(const Refusal& refusal) {
  ByteWriter writer = OpenMessage(Kind::kRefused);
  const auto code = std::find(kCodes.begin(), kCodes.end() - 1, refusal.code) - kCodes.begin();
  const std::string_view message = WhatFits(refusal.message);
  writer.Put(refusal.ticket);
  writer.Put(static_cast<std::uint8_t>(code + 1));
  writer.Put(static_cast<std::uint16_t>(message.size()));
  writer.PutBytes(message);
  return std::move(writer).Take();
}

Kind DecodeKind(std::span<const std::byte> message) {
  return static_cast<Kind>(ByteReader("message", message).Get<std::uint8_t>("kind"));
}

Request DecodeRequest(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kRequest, "REQUEST");
  Request request;
  request.ticket = reader.Get<std::uint64_t>("ticket");
  request.offer_id = reader.Get<std::uint64_t>("offer");
  const auto count = reader.Get<std::uint32_t>("number of regions");
  if (reader.remaining() != count * kRegionBytes) reader.Fail(std::to_string(count) + " regions do not fill the rest");
  request.regions.resize(count);
  for (Region& region : request.regions) {
    region.tensor = reader.Get<std::uint32_t>("tensor");
    region.offset = reader.Get<std::uint64_t>("offset");
    region.row_bytes = reader.Get<std::uint64_t>("row bytes");
    region.rows = reader.Get<std::uint64_t>("rows");
    region.stride = reader.Get<std::uint64_t>("stride");
  }
  return request;
}

Refusal DecodeRefusal(std::span<const std::byte> message) {
  ByteReader reader = OpenMessage(message, Kind::kRefused, "REFUSED");
  Refusal refusal;
  refusal.ticket = reader.Get<std::uint64_t>("ticket");
  const auto code = reader.Get<std::uint8_t>("code");
  if (code == 0 || code > kCodes.size()) reader.Fail("code " + std::to_string(code));
  refusal.code = kCodes[code - 1U];
  refusal.message = reader.GetText(reader.Get<std::uint16_t>("length"), "text");
  if (FindInvalidUtf8(refusal.message)) reader.Fail("text is not UTF-8");
  reader.ExpectEnd();
  return refusal;
}

void ThrowRefusal(std::span<const std::byte> message) {
  const Refusal refusal = DecodeRefusal(message);
  throw Error(refusal.code, "it refused: " + refusal.message);
}

void DecodeBare(std::span<const std::byte> message) {
  ByteReader reader("message", message);
  reader.Get<std::uint8_t>("kind");
  reader.ExpectEnd();
}

}  // namespace layercast
