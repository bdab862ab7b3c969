#include "src/tensor/element.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/base/check.h"

namespace layercast {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What the largest exponent means.
enum class Top : std::uint8_t {
  kIeee,      // infinity, or NaN where the mantissa is not 0
  kFinite,    // numbers like the others
  kNanIfAll,  // "fn": numbers, except that all ones is NaN
};

double DecodeFloat(std::uint64_t bits, int exponent_bits, int mantissa_bits, int bias, Top top) {
  const auto all_exponents = (1U << exponent_bits) - 1;
  const auto exponent = static_cast<unsigned>(bits >> mantissa_bits) & all_exponents;
  const std::uint64_t all_mantissas = (std::uint64_t{1} << mantissa_bits) - 1;
  const std::uint64_t mantissa = bits & all_mantissas;
  const double sign = ((bits >> (exponent_bits + mantissa_bits)) & 1) != 0 ? -1.0 : 1.0;
  if (exponent == all_exponents) {
    if (top == Top::kIeee) return mantissa == 0 ? sign * kInfinity : kNan;
    if (top == Top::kNanIfAll && mantissa == all_mantissas) return kNan;
  }
  const auto fraction = static_cast<double>(mantissa);
  const int lowest = 1 - bias - mantissa_bits;  // exponent of the smallest subnormal
  if (exponent == 0) return sign * std::ldexp(fraction, lowest);
  const double significand = fraction + static_cast<double>(all_mantissas + 1);
  return sign * std::ldexp(significand, lowest + static_cast<int>(exponent) - 1);
}

// "fnuz": one zero, one NaN (which would be the negative zero), no infinity.
double DecodeFnuz(std::uint64_t bits, int exponent_bits, int mantissa_bits, int bias) {
  if (bits == 0x80) return kNan;
  return DecodeFloat(bits, exponent_bits, mantissa_bits, bias, Top::kFinite);
}

}  // namespace

double DecodeElement(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::kF4: return DecodeFloat(bits, 2, 1, 1, Top::kFinite);
    case DType::kF6E2M3: return DecodeFloat(bits, 2, 3, 1, Top::kFinite);
    case DType::kF6E3M2: return DecodeFloat(bits, 3, 2, 3, Top::kFinite);
    case DType::kF8E5M2: return DecodeFloat(bits, 5, 2, 15, Top::kIeee);
    case DType::kF8E4M3: return DecodeFloat(bits, 4, 3, 7, Top::kNanIfAll);
    case DType::kF8E8M0: return bits == 0xff ? kNan : std::ldexp(1.0, static_cast<int>(bits) - 127);
    case DType::kF8E4M3FNUZ: return DecodeFnuz(bits, 4, 3, 8);
    case DType::kF8E5M2FNUZ: return DecodeFnuz(bits, 5, 2, 16);
    case DType::kF16: return DecodeFloat(bits, 5, 10, 15, Top::kIeee);
    case DType::kBF16: return DecodeFloat(bits, 8, 7, 127, Top::kIeee);
    case DType::kF32: return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    case DType::kF64: return std::bit_cast<double>(bits);
    default: break;
  }
  LAYERCAST_CHECK(false && "not a floating-point type");
  return 0.0;
}

std::uint64_t ElementBits(DType dtype, const std::byte* row, std::int64_t index) {
  const int width = BitsPerElement(dtype);
  const std::int64_t first_bit = index * width;
  const std::int64_t shift = first_bit % 8;
  const auto bytes = static_cast<std::size_t>((shift + width + 7) / 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, row + first_bit / 8, bytes);
  bits >>= shift;
  return width == 64 ? bits : bits & ((std::uint64_t{1} << width) - 1);
}

}  // namespace layercast
