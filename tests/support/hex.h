// Bytes as text, for tests that hold an encoding against the exact bytes that it must have.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace layercast::test {

inline std::string Hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace layercast::test
