// The floating-point types that weights are cast between: for each its storage, the bits of its infinity as a word of
// that size, and its conversions from and to fp32,
// bit for bit as torch's `.to(dtype)`: to nearest, ties to even; NaN stays NaN. They use only operations that give the
// same bits on a CUDA device. Used by Cast and its CUDA kernel.
#pragma once

#include <cstdint>
#include <cstring>

#include "src/base/digest/host_device.h"

namespace layercast::conversions {

template <class To, class From>
LAYERCAST_HOST_DEVICE inline To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

struct F32 {
  using Bits = float;
  using Word = std::uint32_t;
  static constexpr Word kInfinity = 0x7F800000;
  LAYERCAST_HOST_DEVICE static float ToFloat(float value) { return value; }
  LAYERCAST_HOST_DEVICE static float FromFloat(float value) { return value; }
};

struct F64 {
  using Bits = double;
  using Word = std::uint64_t;
  static constexpr Word kInfinity = std::uint64_t{0x7FF} << 52;
  LAYERCAST_HOST_DEVICE static float ToFloat(double value) {
    const auto bits = BitCast<std::uint64_t>(value);
    if ((bits & ~kSign) <= kInfinity) return static_cast<float>(value);
    // A NaN keeps its sign and the beginning of its mantissa, and becomes quiet. This is written out because processors
    // differ in what they make of a NaN.
    const std::uint64_t narrow = (bits & kSign) >> 32 | 0x7FC00000U | (bits >> 29 & 0x3FFFFFU);
    return BitCast<float>(static_cast<std::uint32_t>(narrow));
  }
  LAYERCAST_HOST_DEVICE static double FromFloat(float value) { return static_cast<double>(value); }

 private:
  static constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
};

struct BF16 {
  using Bits = std::uint16_t;
  using Word = std::uint16_t;
  static constexpr Word kInfinity = 0x7F80;
  LAYERCAST_HOST_DEVICE static float ToFloat(Bits bits) {
    return BitCast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  LAYERCAST_HOST_DEVICE static Bits FromFloat(float value) {
    const auto bits = BitCast<std::uint32_t>(value);
    if (value != value) return 0x7FC0;
    return static_cast<Bits>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
};

struct F16 {
  using Bits = std::uint16_t;
  using Word = std::uint16_t;
  static constexpr Word kInfinity = 0x7C00;
  LAYERCAST_HOST_DEVICE static float ToFloat(Bits half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
    const std::uint32_t magnitude = half & 0x7FFF;
    if (magnitude >= 0x7C00) return BitCast<float>(sign | 0x7F800000 | (magnitude << 13));  // infinity, NaN
    // Scaling by 2^112 rebiases the exponent and normalizes subnormals, exactly.
    const float scaled = BitCast<float>(magnitude << 13) * BitCast<float>((127U + 112U) << 23);
    return BitCast<float>(sign | BitCast<std::uint32_t>(scaled));
  }
  LAYERCAST_HOST_DEVICE static Bits FromFloat(float value) {
    const auto bits = BitCast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint32_t>((bits >> 16) & 0x8000);
    const std::uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return static_cast<Bits>(sign | 0x7E00);
    if (magnitude >= 0x477FF000) return static_cast<Bits>(sign | 0x7C00);  // 65520 and more round to infinity
    if (magnitude < 0x38800000) {
      // Below 2^-14: adding 0.5 leaves the value in units of 2^-24, rounded to even, in the low mantissa bits.
      const float shifted = BitCast<float>(magnitude) + 0.5F;
      return static_cast<Bits>(sign | (BitCast<std::uint32_t>(shifted) - BitCast<std::uint32_t>(0.5F)));
    }
    const std::uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1) - (112U << 23);
    return static_cast<Bits>(sign | (rounded >> 13));
  }
};

// Whether an element is neither infinite nor NaN: those have all bits of the exponent, which are infinity's.
template <class Type>
LAYERCAST_HOST_DEVICE inline bool IsFinite(typename Type::Bits bits) {
  return (BitCast<typename Type::Word>(bits) & Type::kInfinity) != Type::kInfinity;
}

}  // namespace layercast::conversions
