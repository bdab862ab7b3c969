#include "src/trace/trace_context.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "src/base/digest/digest.h"
#include "src/base/random_id.h"

namespace layercast {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

void Put(std::array<std::byte, 16>& trace, std::size_t first, std::uint64_t number) {
  for (std::size_t i = 0; i < 8; ++i) trace.at(first + i) = static_cast<std::byte>(number >> (56 - 8 * i));
}

// W3C has lower-case digits alone. nullopt: these are others, or all zeros, which stand for none.
std::optional<std::uint64_t> Number(std::string_view digits) {
  if (digits.find_first_not_of(kDigits) != std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

}  // namespace

std::string TraceContext::TraceHex() const {
  std::string text;
  for (const std::byte byte : trace) {
    text += kDigits[std::to_integer<std::size_t>(byte) >> 4U];
    text += kDigits[std::to_integer<std::size_t>(byte) & 15U];
  }
  return text;
}

std::string TraceContext::Traceparent() const { return "00-" + TraceHex() + "-" + SpanHex(span) + "-01"; }

std::string SpanHex(std::uint64_t span) {
  std::string text;
  for (unsigned shift = 64; shift > 0; shift -= 4) text += kDigits[(span >> (shift - 4U)) & 15U];
  return text;
}

TraceContext NewTrace() {
  TraceContext made;
  Put(made.trace, 0, NewSpan());
  Put(made.trace, 8, NewSpan());
  return made;
}

TraceContext TraceOfSession(std::string_view session) {
  const Digest digest = DigestOf(std::as_bytes(std::span(session)));
  TraceContext made;
  Put(made.trace, 0, digest.high);
  Put(made.trace, 8, digest.low);
  return made;
}

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  constexpr std::size_t kLength = 55;
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  const std::string_view version = text.substr(0, 2);
  if (!Number(version) || version == "ff" || !Number(text.substr(53, 2))) return std::nullopt;
  if (version == "00" ? text.size() != kLength : text.size() > kLength && text[kLength] != '-') return std::nullopt;
  const auto high = Number(text.substr(3, 16));
  const auto low = Number(text.substr(19, 16));
  const auto span = Number(text.substr(36, 16));
  if (!high || !low || !span || (*high == 0 && *low == 0) || *span == 0) return std::nullopt;
  TraceContext made{.span = *span};
  Put(made.trace, 0, *high);
  Put(made.trace, 8, *low);
  return made;
}

std::uint64_t NewSpan() { return std::max<std::uint64_t>(RandomId(), 1); }

}  // namespace layercast
