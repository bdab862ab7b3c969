// What all parts of XXH3 use: its primes, its default secret, and how 64-bit words are mixed. Written from the
// specification of XXH3 (xxHash, doc/xxhash_spec.md, "XXH3 Algorithm Overview"), whose names these are. The seed is
// always 0, so what would add it is left out. The code is the same on a device and on the host, which is how tests run
// it without a device. Both are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/base/digest/host_device.h"

namespace layercast::xxh3 {

inline constexpr std::uint32_t kPrime32_1 = 0x9e3779b1U;
inline constexpr std::uint32_t kPrime32_2 = 0x85ebca77U;
inline constexpr std::uint32_t kPrime32_3 = 0xc2b2ae3dU;
inline constexpr std::uint64_t kPrime64_1 = 0x9e3779b185ebca87U;
inline constexpr std::uint64_t kPrime64_2 = 0xc2b2ae3d27d4eb4fU;
inline constexpr std::uint64_t kPrime64_3 = 0x165667b19e3779f9U;
inline constexpr std::uint64_t kPrime64_4 = 0x85ebca77c2b2ae63U;
inline constexpr std::uint64_t kPrime64_5 = 0x27d4eb2f165667c5U;
inline constexpr std::uint64_t kPrimeMx1 = 0x165667919e3779f9U;
inline constexpr std::uint64_t kPrimeMx2 = 0x9fb21c651e98df25U;

struct Uint128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

template <class Word>
LAYERCAST_HOST_DEVICE inline Word Read(const unsigned char* from) {
  Word word;
  memcpy(&word, from, sizeof word);
  return word;
}

// Eight of the 192 bytes of the default secret, from `offset` on. A constant if `offset` is one.
LAYERCAST_HOST_DEVICE inline std::uint64_t Secret64(unsigned offset) {
  static constexpr std::uint64_t kSecret[24] = {
      0xbe4ba423396cfeb8U, 0x1cad21f72c81017cU, 0xdb979083e96dd4deU, 0x1f67b3b7a4a44072U, 0x78e5c0cc4ee679cbU,
      0x2172ffcc7dd05a82U, 0x8e2443f7744608b8U, 0x4c263a81e69035e0U, 0xcb00c391bb52283cU, 0xa32e531b8b65d088U,
      0x4ef90da297486471U, 0xd8acdea946ef1938U, 0x3f349ce33f76faa8U, 0x1d4f0bc7c7bbdcf9U, 0x3159b4cd4be0518aU,
      0x647378d9c97e9fc8U, 0xc3ebd33483acc5eaU, 0xeb6313faffa081c5U, 0x49daf0b751dd0d17U, 0x9e68d429265516d3U,
      0xfca1477d58be162bU, 0xce31d07ad1b8f88fU, 0x280416958f3acb45U, 0x7e404bbbcafbd7afU,
  };
  const unsigned word = offset / 8;
  const unsigned bits = offset % 8 * 8;
  return bits == 0 ? kSecret[word] : kSecret[word] >> bits | kSecret[word + 1] << (64 - bits);
}

LAYERCAST_HOST_DEVICE inline std::uint32_t Secret32(unsigned offset) {
  return static_cast<std::uint32_t>(Secret64(offset));
}

LAYERCAST_HOST_DEVICE inline std::uint32_t SwapBytes(std::uint32_t x) {
  return x << 24 | (x << 8 & 0xff0000U) | (x >> 8 & 0xff00U) | x >> 24;
}

LAYERCAST_HOST_DEVICE inline std::uint64_t SwapBytes(std::uint64_t x) {
  return std::uint64_t{SwapBytes(static_cast<std::uint32_t>(x))} << 32 | SwapBytes(static_cast<std::uint32_t>(x >> 32));
}

// The product of the two halves of a word.
LAYERCAST_HOST_DEVICE inline std::uint64_t MultiplyHalves(std::uint64_t x) { return (x & 0xffffffffU) * (x >> 32); }

LAYERCAST_HOST_DEVICE inline Uint128 Multiply(std::uint64_t x, std::uint64_t y) {
#ifdef __CUDA_ARCH__
  return {x * y, __umul64hi(x, y)};
#else
  const std::uint64_t x_low = x & 0xffffffffU;
  const std::uint64_t y_low = y & 0xffffffffU;
  const std::uint64_t middle = (x >> 32) * y_low + (x_low * y_low >> 32);
  const std::uint64_t other = x_low * (y >> 32) + (middle & 0xffffffffU);
  return {x * y, (x >> 32) * (y >> 32) + (middle >> 32) + (other >> 32)};
#endif
}

LAYERCAST_HOST_DEVICE inline std::uint64_t MultiplyAndFold(std::uint64_t x, std::uint64_t y) {
  const Uint128 product = Multiply(x, y);
  return product.low ^ product.high;
}

LAYERCAST_HOST_DEVICE inline std::uint64_t Avalanche(std::uint64_t x) {
  x ^= x >> 37;
  x *= kPrimeMx1;
  return x ^ x >> 32;
}

LAYERCAST_HOST_DEVICE inline std::uint64_t AvalancheXxh64(std::uint64_t x) {
  x ^= x >> 33;
  x *= kPrime64_2;
  x ^= x >> 29;
  x *= kPrime64_3;
  return x ^ x >> 32;
}

}  // namespace layercast::xxh3
