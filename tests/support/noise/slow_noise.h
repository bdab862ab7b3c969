// Noise on norms in the obvious, slow way, with the library's logarithm and circle: what must be served.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "layercast/noise/noise.h"

namespace layercast::testing {

inline std::uint64_t SlowHash(const std::string& name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211ULL;
  }
  return hash;
}

// Number `i` of a seed and a name.
inline float SlowNormal(std::uint64_t seed, const std::string& name, std::uint64_t i) {
  const std::uint64_t hash = SlowHash(name);
  constexpr std::uint64_t kWord = std::uint64_t{1} << 32;
  std::uint64_t c[4] = {i / 4 % kWord, i / 4 / kWord, hash % kWord, hash / kWord};
  std::uint64_t k[2] = {seed % kWord, seed / kWord};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p = 3528531795ULL * c[0], q = 3449720151ULL * c[2];
    const std::uint64_t next[4] = {(q / kWord) ^ c[1] ^ k[0], q % kWord, (p / kWord) ^ c[3] ^ k[1], p % kWord};
    std::memcpy(c, next, sizeof c);
    k[0] = (k[0] + 2654435769ULL) % kWord;
    k[1] = (k[1] + 3144134277ULL) % kWord;
  }
  const std::size_t pair = i % 4 / 2 * 2;
  const double u = (static_cast<double>(c[pair]) + 0.5) / static_cast<double>(kWord);
  const double turn = 2 * std::numbers::pi * (static_cast<double>(c[pair + 1]) + 0.5) / static_cast<double>(kWord);
  const double radius = std::sqrt(-2 * std::log(u));
  return static_cast<float>(radius * (i % 2 == 0 ? std::cos(turn) : std::sin(turn)));
}

// bf16, to nearest, ties to even.
inline float SlowBf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  const std::uint32_t rest = bits & 0xFFFF;
  bits &= 0xFFFF0000;
  if (rest > 0x8000 || (rest == 0x8000 && (bits & 0x10000) != 0)) bits += 0x10000;
  std::memcpy(&value, &bits, 4);
  return value;
}

// The bytes of a bf16 norm that begins with that channel.
inline std::vector<std::byte> SlowNoise(std::span<const std::byte> clean, const std::string& name, const Noise& noise,
                                        std::uint64_t first_channel = 0) {
  std::vector<std::byte> noisy(clean.size());
  for (std::size_t i = 0; i < clean.size() / 2; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, clean.data() + 2 * i, 2);
    std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float weight = 0;
    std::memcpy(&weight, &bits, 4);
    const float drawn = noise.sigma * SlowNormal(noise.seed ^ noise.own, name, first_channel + i);
    const float sum = SlowBf16(weight + SlowBf16(drawn));
    std::memcpy(&bits, &sum, 4);
    half = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(noisy.data() + 2 * i, &half, 2);
  }
  return noisy;
}

}  // namespace layercast::testing
