#include "src/base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace layercast {
namespace {

// The length of the well-formed sequence that `text` begins with; 0: it begins with none.
std::size_t SequenceLength(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const auto continues = [&](std::size_t i, std::uint8_t low = 0x80, std::uint8_t high = 0xBF) {
    return i < text.size() && at(i) >= low && at(i) <= high;
  };
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return continues(1) ? 2 : 0;
  if (lead < 0xF0) {
    const bool second = lead == 0xE0 ? continues(1, 0xA0) : lead == 0xED ? continues(1, 0x80, 0x9F) : continues(1);
    return second && continues(2) ? 3 : 0;
  }
  if (lead < 0xF5) {
    const bool second = lead == 0xF0 ? continues(1, 0x90) : lead == 0xF4 ? continues(1, 0x80, 0x8F) : continues(1);
    return second && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

constexpr std::size_t kLongestName = 1024;

// The code point of a well-formed sequence.
char32_t CodePoint(std::string_view sequence) {
  const auto lead = static_cast<std::uint8_t>(sequence[0]);
  if (sequence.size() == 1) return lead;
  char32_t point = lead & (0x7FU >> sequence.size());
  for (const char next : sequence.substr(1)) point = point << 6 | (static_cast<std::uint8_t>(next) & 0x3FU);
  return point;
}

bool IsPrintable(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kUnprintable[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x61C, 0x61C},
                                                            {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}};
  return std::ranges::none_of(kUnprintable, [c](const auto& range) { return range.first <= c && c <= range.second; });
}

// The length of the printable character that `text` begins with; 0: it begins with none.
std::size_t PrintableLength(std::string_view text) {
  const std::size_t length = SequenceLength(text);
  return length > 0 && IsPrintable(CodePoint(text.substr(0, length))) ? length : 0;
}

// Appends the character at `i`, or its first byte as \xNN if it is not printable (its other bytes are none then,
// either). Returns where the next one is.
std::size_t AppendEscaped(std::string_view text, std::size_t i, std::string& out) {
  constexpr char kDigits[] = "0123456789abcdef";
  const std::size_t length = PrintableLength(text.substr(i));
  if (length > 0) {
    out += text.substr(i, length);
    return i + length;
  }
  const auto byte = static_cast<std::uint8_t>(text[i]);
  out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 0xF]};
  return i + 1;
}

// Escapes all but the line breaks that `keeps` takes, by what follows them.
template <typename Keeps>
std::string EscapedBut(std::string_view text, const Keeps& keeps) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\n' && keeps(text.substr(i + 1))) {
      out += text[i++];
    } else {
      i = AppendEscaped(text, i, out);
    }
  }
  return out;
}

}  // namespace

std::optional<std::size_t> FindInvalidUtf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = SequenceLength(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

std::string Escaped(std::string_view text, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (i >= most) return out + "...";
    i = AppendEscaped(text, i, out);
  }
  return out;
}

std::string EscapedLines(std::string_view text) {
  return EscapedBut(text, [](std::string_view) { return true; });
}

std::string EscapedMessage(std::string_view text) {
  return EscapedBut(text, [](std::string_view next) { return next.starts_with("  "); });
}

std::string Quote(std::string_view text) {
  constexpr std::size_t kMost = 200;
  return "'" + Escaped(text, kMost) + "'";
}

void CheckName(const std::string& what, const std::string& name, ErrorCode code) {
  if (name.size() > kLongestName) {
    throw Error(code, what + " " + Quote(name) + ": expected at most " + std::to_string(kLongestName) + " bytes, got " +
                          std::to_string(name.size()));
  }
  if (Escaped(name) == name) return;
  throw Error(code, what + " " + Quote(name) + ": expected UTF-8 without control characters");
}

}  // namespace layercast
