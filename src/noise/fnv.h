// FNV-1a of 64 bits: names of parameters and of engines as numbers, in a hash that everybody can write down. Used where
// noise is seeded.
#pragma once

#include <cstdint>
#include <string_view>

namespace layercast {

// http://www.isthe.com/chongo/tech/comp/fnv: h = 0xcbf29ce484222325; of each byte: h = (h ^ byte) * 0x100000001b3.
constexpr std::uint64_t Fnv1a(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char byte : text) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001B3;
  return hash;
}

}  // namespace layercast
