// XXH3-128 of at most 240 bytes, by one thread. The specification defines it separately for each range of lengths
// (doc/xxhash_spec.md, "Small inputs" and "Medium inputs"). Only a last leaf is so short, so nothing here is tuned.
#pragma once

#include "src/device/kernels/xxh3_words.cuh"

namespace layercast::xxh3 {

inline constexpr std::uint64_t kMostShort = 240;

LAYERCAST_HOST_DEVICE inline Uint128 HashEmpty() {
  return {AvalancheXxh64(Secret64(64) ^ Secret64(72)), AvalancheXxh64(Secret64(80) ^ Secret64(88))};
}

LAYERCAST_HOST_DEVICE inline Uint128 Hash1To3(const unsigned char* input, std::uint64_t length) {
  const std::uint32_t combined = std::uint32_t{input[length - 1]} | static_cast<std::uint32_t>(length) << 8 |
                                 std::uint32_t{input[0]} << 16 | std::uint32_t{input[length / 2]} << 24;
  const std::uint32_t swapped = SwapBytes(combined);
  const std::uint32_t turned = swapped << 13 | swapped >> 19;
  const std::uint64_t low = (Secret32(0) ^ Secret32(4)) ^ combined;
  const std::uint64_t high = (Secret32(8) ^ Secret32(12)) ^ turned;
  return {AvalancheXxh64(low), AvalancheXxh64(high)};
}

LAYERCAST_HOST_DEVICE inline Uint128 Hash4To8(const unsigned char* input, std::uint64_t length) {
  const std::uint64_t first = Read<std::uint32_t>(input);
  const std::uint64_t last = Read<std::uint32_t>(input + length - 4);
  Uint128 hash = Multiply((first | last << 32) ^ Secret64(16) ^ Secret64(24), kPrime64_1 + (length << 2));
  hash.high += hash.low << 1;
  hash.low ^= hash.high >> 3;
  hash.low ^= hash.low >> 35;
  hash.low *= kPrimeMx2;
  hash.low ^= hash.low >> 28;
  return {hash.low, Avalanche(hash.high)};
}

LAYERCAST_HOST_DEVICE inline Uint128 Hash9To16(const unsigned char* input, std::uint64_t length) {
  const auto first = Read<std::uint64_t>(input);
  const auto last = Read<std::uint64_t>(input + length - 8);
  const std::uint64_t keyed = last ^ Secret64(48) ^ Secret64(56);
  Uint128 mixed = Multiply(first ^ last ^ Secret64(32) ^ Secret64(40), kPrime64_1);
  mixed.low += (length - 1) << 54;
  mixed.high += keyed + (keyed & 0xffffffffU) * (kPrime32_2 - 1);
  mixed.low ^= SwapBytes(mixed.high);
  Uint128 hash = Multiply(mixed.low, kPrime64_2);
  hash.high += mixed.high * kPrime64_2;
  return {Avalanche(hash.low), Avalanche(hash.high)};
}

LAYERCAST_HOST_DEVICE inline std::uint64_t MixStep(const unsigned char* input, unsigned secret) {
  return MultiplyAndFold(Read<std::uint64_t>(input) ^ Secret64(secret),
                         Read<std::uint64_t>(input + 8) ^ Secret64(secret + 8));
}

LAYERCAST_HOST_DEVICE inline std::uint64_t Sum16(const unsigned char* input) {
  return Read<std::uint64_t>(input) + Read<std::uint64_t>(input + 8);
}

// Takes in 16 bytes at `first` and 16 at `second`.
LAYERCAST_HOST_DEVICE inline void MixTwoChunks(Uint128& acc, const unsigned char* first, const unsigned char* second,
                                               unsigned secret) {
  acc.low += MixStep(first, secret);
  acc.low ^= Sum16(second);
  acc.high += MixStep(second, secret + 16);
  acc.high ^= Sum16(first);
}

LAYERCAST_HOST_DEVICE inline Uint128 FinishMixed(const Uint128& acc, std::uint64_t length) {
  const std::uint64_t low = acc.low + acc.high;
  const std::uint64_t high = acc.low * kPrime64_1 + acc.high * kPrime64_4 + length * kPrime64_2;
  return {Avalanche(low), 0 - Avalanche(high)};
}

// Goes from the middle to both ends.
LAYERCAST_HOST_DEVICE inline Uint128 Hash17To128(const unsigned char* input, std::uint64_t length) {
  Uint128 acc{length * kPrime64_1, 0};
  for (auto pairs = static_cast<unsigned>(length - 1) / 32 + 1; pairs > 0; --pairs) {
    MixTwoChunks(acc, input + 16 * (pairs - 1), input + length - 16 * pairs, 32 * (pairs - 1));
  }
  return FinishMixed(acc, length);
}

LAYERCAST_HOST_DEVICE inline Uint128 Hash129To240(const unsigned char* input, std::uint64_t length) {
  Uint128 acc{length * kPrime64_1, 0};
  for (unsigned at = 0; at < 128; at += 32) MixTwoChunks(acc, input + at, input + at + 16, at);
  acc = {Avalanche(acc.low), Avalanche(acc.high)};
  for (unsigned at = 128; at + 32 <= length; at += 32) MixTwoChunks(acc, input + at, input + at + 16, 3 + at - 128);
  MixTwoChunks(acc, input + length - 16, input + length - 32, 103);
  return FinishMixed(acc, length);
}

LAYERCAST_HOST_DEVICE inline Uint128 HashShort(const unsigned char* input, std::uint64_t length) {
  if (length == 0) return HashEmpty();
  if (length <= 3) return Hash1To3(input, length);
  if (length <= 8) return Hash4To8(input, length);
  if (length <= 16) return Hash9To16(input, length);
  if (length <= 128) return Hash17To128(input, length);
  return Hash129To240(input, length);
}

}  // namespace layercast::xxh3
