// XXH3-128 of more than 240 bytes, by four threads (the specification's doc/xxhash_spec.md, "Large inputs"). The input
// consists of stripes of 64 bytes, 16 of which are a block. Each of a stripe's eight words goes into an accumulator,
// and also into its neighbour's, 2i + 1 for 2i and the reverse. So a thread that has such a pair needs nothing from the
// others until the end, where the result is a sum over what each pair contributes.
#pragma once

#include "src/base/check.h"
#include "src/device/kernels/xxh3_words.cuh"

namespace layercast::xxh3 {

inline constexpr unsigned kTeam = 4;  // threads
inline constexpr unsigned kStripe = 64;
inline constexpr unsigned kStripesPerBlock = 16;
inline constexpr unsigned kBlock = kStripe * kStripesPerBlock;

// A thread's two words of a stripe.
struct Lanes {
  std::uint64_t words[2];
};

// Loads a thread's words from an address aligned to kAlignment, which lets the device's compiler use loads of that many
// bytes. A device refuses them if they are not aligned. A host would not, so it checks.
template <std::size_t kAlignment>
LAYERCAST_HOST_DEVICE inline Lanes LoadLanes(const unsigned char* from) {
#ifndef __CUDA_ARCH__
  LAYERCAST_CHECK(reinterpret_cast<std::uintptr_t>(from) % kAlignment == 0);
#endif
  Lanes lanes;
  memcpy(&lanes, __builtin_assume_aligned(from, kAlignment), sizeof lanes);
  return lanes;
}

LAYERCAST_HOST_DEVICE inline std::uint64_t InitialAccumulator(unsigned lane) {
  static constexpr std::uint64_t kInitial[8] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                                kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  return kInitial[lane];
}

// Accumulators 2 * thread and 2 * thread + 1. The words of the secret that they are combined with stay in registers.
// Value.
class LanePair {
 public:
  LAYERCAST_HOST_DEVICE explicit LanePair(unsigned thread)
      : offset_(16 * thread), acc_{InitialAccumulator(2 * thread), InitialAccumulator(2 * thread + 1)} {
    LAYERCAST_UNROLL
    for (unsigned i = 0; i < kSecretWords; ++i) secret_[i] = Secret64(offset_ + 8 * i);
  }

  // Takes in all of the input, which must start at an address aligned to kAlignment.
  template <std::size_t kAlignment>
  LAYERCAST_HOST_DEVICE void TakeIn(const unsigned char* input, std::uint64_t length) {
    const auto stripes = static_cast<unsigned>((length - 1) / kStripe);  // without the last 64 bytes
    const unsigned char* block = input + offset_;
    for (unsigned left = stripes / kStripesPerBlock; left > 0; --left, block += kBlock) {
      TakeInStripes<kAlignment>(block, kStripesPerBlock);
      Scramble();
    }
    const unsigned char* last = input + length - kStripe + offset_;
    if (length % kBlock == 0) {  // all leaves but the last: no conditions, and all loads are aligned
      TakeInEnd<kAlignment, kAlignment>(block, kStripesPerBlock - 1, last);
    } else {
      TakeInEnd<kAlignment, 1>(block, stripes % kStripesPerBlock, last);
    }
  }

  // What the pair adds to each half of the hash.
  LAYERCAST_HOST_DEVICE Uint128 Fold() const { return {FoldWith(11 + offset_), FoldWith(117 + offset_)}; }

 private:
  static constexpr unsigned kSecretWords = kStripesPerBlock + 2;  // stripe i uses i and i + 1, scrambling the last two
  static constexpr unsigned kInFlight = 8;                        // stripes that are loaded at once

  // Takes in the first `count` stripes of a block.
  template <std::size_t kAlignment>
  LAYERCAST_HOST_DEVICE void TakeInStripes(const unsigned char* block, unsigned count) {
    LAYERCAST_UNROLL
    for (unsigned first = 0; first < kStripesPerBlock; first += kInFlight) {
      Lanes lanes[kInFlight];
      LAYERCAST_UNROLL
      for (unsigned i = 0; i < kInFlight; ++i) {
        if (first + i < count) lanes[i] = LoadLanes<kAlignment>(block + (first + i) * kStripe);
      }
      LAYERCAST_UNROLL
      for (unsigned i = 0; i < kInFlight; ++i) {
        if (first + i < count) Accumulate(lanes[i], secret_[first + i], secret_[first + i + 1]);
      }
    }
  }

  // Takes in the last stripes, and then the input's last 64 bytes, which may begin in the stripe before. `last` is
  // where the thread's words of these are.
  template <std::size_t kAlignment, std::size_t kLastAlignment>
  LAYERCAST_HOST_DEVICE void TakeInEnd(const unsigned char* block, unsigned count, const unsigned char* last) {
    TakeInStripes<kAlignment>(block, count);
    Accumulate(LoadLanes<kLastAlignment>(last), Secret64(121 + offset_), Secret64(129 + offset_));
  }

  LAYERCAST_HOST_DEVICE void Accumulate(const Lanes& lanes, std::uint64_t secret, std::uint64_t next_secret) {
    acc_[0] += lanes.words[1] + MultiplyHalves(lanes.words[0] ^ secret);
    acc_[1] += lanes.words[0] + MultiplyHalves(lanes.words[1] ^ next_secret);
  }

  LAYERCAST_HOST_DEVICE void Scramble() {
    LAYERCAST_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      acc_[i] ^= acc_[i] >> 47;
      acc_[i] ^= secret_[kStripesPerBlock + i];
      acc_[i] *= kPrime32_1;
    }
  }

  LAYERCAST_HOST_DEVICE std::uint64_t FoldWith(unsigned secret) const {
    return MultiplyAndFold(acc_[0] ^ Secret64(secret), acc_[1] ^ Secret64(secret + 8));
  }

  unsigned offset_;  // where the pair's words are in a stripe; bytes
  std::uint64_t acc_[2];
  std::uint64_t secret_[kSecretWords];
};

// `folds` is the sum over the four pairs.
LAYERCAST_HOST_DEVICE inline Uint128 FinishLong(const Uint128& folds, std::uint64_t length) {
  return {Avalanche(length * kPrime64_1 + folds.low), Avalanche(~(length * kPrime64_2) + folds.high)};
}

}  // namespace layercast::xxh3
