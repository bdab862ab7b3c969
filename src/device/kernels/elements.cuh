// The types that weights come in, eight elements at a time. Eight elements are a *unit*, which one thread loads at
// once. Values. Used by the bodies of kernels.
#pragma once

#include <cstdint>

#include "src/base/bytes/float_bits.h"
#include "src/device/kernels/words.cuh"

namespace layercast::cuda {

inline constexpr int kUnit = 8;  // elements

// Eight elements as they lie in memory; those past the end of a row are 0.
template <class Type>
struct Unit {
  std::uint32_t words[kUnit * Type::kBytes / 4];
};

// Each type has
//   kBytes          bytes of an element
//   kInfinity       infinity's magnitude, as Magnitude gives it
//   Magnitude(words, i), the bits of |element i| as an fp32: those of NaN are above kInfinity, those of numbers below
//   Value(words, i), element i as an fp32, if it is a number
//   HighBytes(words, half), bytes whose top bits are the signs of elements 4 * half ... 4 * half + 3

struct BF16 {
  static constexpr int kBytes = 2;
  static constexpr std::uint32_t kInfinity = kInfinityBits;
  LAYERCAST_HOST_DEVICE static std::uint32_t Magnitude(const std::uint32_t* words, int i) {
    return (i % 2 == 0 ? words[i / 2] << 16 : words[i / 2]) & 0x7fff0000U;
  }
  LAYERCAST_HOST_DEVICE static float Value(const std::uint32_t* words, int i) {
    return FloatOfBits(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000U);
  }
  LAYERCAST_HOST_DEVICE static std::uint32_t HighBytes(const std::uint32_t* words, int half) {
    return PickBytes(words[2 * half], words[2 * half + 1], 0x7531);
  }
};

struct F16 {
  static constexpr int kBytes = 2;
  static constexpr std::uint32_t kInfinity = 0x47800000U;  // its exponent, rebiased like any other, makes 65536
  LAYERCAST_HOST_DEVICE static std::uint32_t Magnitude(const std::uint32_t* words, int i) {
    return BitsOfFloat(Rebiased((i % 2 == 0 ? words[i / 2] << 13 : words[i / 2] >> 3) & kMoved));
  }
  LAYERCAST_HOST_DEVICE static float Value(const std::uint32_t* words, int i) {
    const std::uint32_t high = i % 2 == 0 ? words[i / 2] << 16 : words[i / 2];
    return Rebiased((high >> 3 & kMoved) | (high & 0x80000000U));
  }
  LAYERCAST_HOST_DEVICE static std::uint32_t HighBytes(const std::uint32_t* words, int half) {
    return BF16::HighBytes(words, half);
  }

 private:
  static constexpr std::uint32_t kMoved = 0x7fffU << 13;  // an f16's bits but the sign, where an fp32 has them
  // Multiplying by 2^112 rebiases the exponent and normalizes subnormals, exactly.
  LAYERCAST_HOST_DEVICE static float Rebiased(std::uint32_t moved) {
    return FloatOfBits(moved) * FloatOfBits((127U + 112U) << 23);
  }
};

struct F32 {
  static constexpr int kBytes = 4;
  static constexpr std::uint32_t kInfinity = kInfinityBits;
  LAYERCAST_HOST_DEVICE static std::uint32_t Magnitude(const std::uint32_t* words, int i) {
    return words[i] & 0x7fffffffU;
  }
  LAYERCAST_HOST_DEVICE static float Value(const std::uint32_t* words, int i) { return FloatOfBits(words[i]); }
  LAYERCAST_HOST_DEVICE static std::uint32_t HighBytes(const std::uint32_t* words, int half) {
    const std::uint32_t* four = words + 4 * half;
    return PickBytes(PickBytes(four[0], four[1], 0x0073), PickBytes(four[2], four[3], 0x0073), 0x5410);
  }
};

template <class Type>
LAYERCAST_HOST_DEVICE float MagnitudeOf(const Unit<Type>& unit, int i) {
  return FloatOfBits(Type::Magnitude(unit.words, i));
}

template <class Type>
LAYERCAST_HOST_DEVICE float ValueOf(const Unit<Type>& unit, int i) {
  return Type::Value(unit.words, i);
}

// The sign of element i, where an fp32 has its sign.
template <class Type>
LAYERCAST_HOST_DEVICE std::uint32_t SignOf(const Unit<Type>& unit, int i) {
  return Type::HighBytes(unit.words, i / 4) << (24 - 8 * (i % 4)) & 0x80000000U;
}

// The largest Magnitude of a unit, as bits. Magnitudes are ordered as bits as they are by value.
template <class Type>
LAYERCAST_HOST_DEVICE std::uint32_t LargestOf(const Unit<Type>& unit) {
  std::uint32_t largest = 0;
  LAYERCAST_UNROLL
  for (int i = 0; i < kUnit; ++i) {
    const std::uint32_t magnitude = Type::Magnitude(unit.words, i);
    largest = largest < magnitude ? magnitude : largest;
  }
  return largest;
}

}  // namespace layercast::cuda
