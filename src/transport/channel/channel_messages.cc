#include "src/transport/channel/channel_messages.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/utf8.h"

namespace layercast {
namespace {

// What the codes of REFUSED mean, from code 1 on. The last one stands for all others.
constexpr std::array kCodes{ErrorCode::kNotFound, ErrorCode::kInvalidArgument, ErrorCode::kResourceExhausted,
                            ErrorCode::kUnsupported, ErrorCode::kUnavailable};
constexpr std::size_t kMostText = 1000;  // bytes

// As much of the text as fits into a message and is UTF-8.
std::string WhatFits(std::string_view text) {
  text = text.substr(0, kMostText);
  return std::string(text.substr(0, FindInvalidUtf8(text).value_or(text.size())));
}

}  // namespace

Kind DecodeKind(std::span<const std::byte> message) {
  return static_cast<Kind>(ByteReader("message", message).Get<std::uint8_t>("kind"));
}

void Fields(auto& archive, Is<Refusal> auto& refusal) {
  const auto at = std::find(kCodes.begin(), kCodes.end() - 1, refusal.code) - kCodes.begin();
  auto code = static_cast<std::uint8_t>(at + 1);
  std::string text = WhatFits(refusal.message);
  Begin(archive, Kind::kRefused);
  archive.Number(refusal.ticket, "ticket");
  archive.Number(code, "code");
  if (code == 0 || code > kCodes.size()) archive.Refuse("code " + std::to_string(code));
  Text<std::uint16_t>(archive, text, "length", "text");
  if (FindInvalidUtf8(text)) archive.Refuse("text is not UTF-8");
  archive.Set(refusal.code, kCodes[code - 1U]);
  archive.Set(refusal.message, std::move(text));
}
template void Fields(ArchiveWriter& archive, const Refusal& refusal);
template void Fields(ArchiveReader& archive, Refusal& refusal);

void ThrowRefusal(std::span<const std::byte> message) {
  const auto refusal = Decode<Refusal>(message);
  throw Error(refusal.code, "it refused: " + refusal.message);
}

}  // namespace layercast
