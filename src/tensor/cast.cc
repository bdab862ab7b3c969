#include "src/tensor/cast.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "src/base/check.h"

namespace layercast {
namespace {

// Each type: its storage, and how it goes to and from fp32.
struct F32 {
  using Bits = float;
  static float ToFloat(float value) { return value; }
  static float FromFloat(float value) { return value; }
};

struct F64 {
  using Bits = double;
  static float ToFloat(double value) { return static_cast<float>(value); }
  static double FromFloat(float value) { return static_cast<double>(value); }
};

struct BF16 {
  using Bits = std::uint16_t;
  static float ToFloat(Bits bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static Bits FromFloat(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (value != value) return 0x7FC0;
    return static_cast<Bits>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
};

struct F16 {
  using Bits = std::uint16_t;
  static float ToFloat(Bits half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
    const std::uint32_t magnitude = half & 0x7FFF;
    if (magnitude >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | (magnitude << 13));  // infinity, NaN
    // Scaling by 2^112 rebiases the exponent and normalizes subnormals, exactly.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
  }
  static Bits FromFloat(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint32_t>((bits >> 16) & 0x8000);
    const std::uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return static_cast<Bits>(sign | 0x7E00);
    if (magnitude >= 0x477FF000) return static_cast<Bits>(sign | 0x7C00);  // 65520 and more round to infinity
    if (magnitude < 0x38800000) {
      // Below 2^-14: adding 0.5 leaves the value in units of 2^-24, rounded to even, in the low mantissa bits.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
      return static_cast<Bits>(sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F)));
    }
    const std::uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1) - (112U << 23);
    return static_cast<Bits>(sign | (rounded >> 13));
  }
};

template <typename From, typename To>
void CastAll(const std::byte* source, std::byte* destination, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    typename From::Bits in;
    std::memcpy(&in, source + i * sizeof(in), sizeof(in));
    const typename To::Bits out = To::FromFloat(From::ToFloat(in));
    std::memcpy(destination + i * sizeof(out), &out, sizeof(out));
  }
}

template <typename From>
void CastFrom(const std::byte* source, DType to, std::byte* destination, std::size_t count) {
  switch (to) {
    case DType::kF16: return CastAll<From, F16>(source, destination, count);
    case DType::kBF16: return CastAll<From, BF16>(source, destination, count);
    case DType::kF32: return CastAll<From, F32>(source, destination, count);
    case DType::kF64: return CastAll<From, F64>(source, destination, count);
    default: LAYERCAST_CHECK(false);
  }
}

bool IsCastable(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

}  // namespace

bool CanCast(DType from, DType to) { return IsCastable(from) && IsCastable(to); }

void Cast(DType from, const std::byte* source, DType to, std::byte* destination, std::size_t count) {
  LAYERCAST_CHECK(CanCast(from, to));
  if (from == to) {
    std::memcpy(destination, source, count * static_cast<std::size_t>(BitsPerElement(from)) / 8);
    return;
  }
  switch (from) {
    case DType::kF16: return CastFrom<F16>(source, to, destination, count);
    case DType::kBF16: return CastFrom<BF16>(source, to, destination, count);
    case DType::kF32: return CastFrom<F32>(source, to, destination, count);
    case DType::kF64: return CastFrom<F64>(source, to, destination, count);
    default: LAYERCAST_CHECK(false);
  }
}

float RoundTo(DType to, float value) {
  switch (to) {
    case DType::kF16: return F16::ToFloat(F16::FromFloat(value));
    case DType::kBF16: return BF16::ToFloat(BF16::FromFloat(value));
    default: return value;
  }
}

}  // namespace layercast
