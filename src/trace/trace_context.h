// Which trace a sync is of, as W3C's `traceparent` carries it: "00-<trace>-<span>-01". All processes of a sync have the
// same trace, and each knows the span that it is a part of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace layercast {

// Value.
struct TraceContext {
  std::array<std::byte, 16> trace{};
  std::uint64_t span = 0;  // 0: none
  bool operator==(const TraceContext&) const = default;

  std::string TraceHex() const;     // 32 digits
  std::string Traceparent() const;  // needs a span
};

// 16 digits.
std::string SpanHex(std::uint64_t span);
// A trace that nobody else has, with no span yet.
TraceContext NewTrace();
// The trace of a reload that was given none: both ends know its session's name (SessionName).
TraceContext TraceOfSession(std::string_view session);
// nullopt: that is no traceparent.
std::optional<TraceContext> ParseTraceparent(std::string_view text);
// A number for a span that nobody else has, and not 0.
std::uint64_t NewSpan();

}  // namespace layercast
