#include "engine_side/quant/codes.h"

#include <algorithm>
#include <cmath>

#include "engine_side/quant/scales.h"

namespace layercast {
namespace {

// The code of a magnitude. Codes count the multiples of 2^(exponent - mantissa_bits). Subnormals have the exponent of
// the smallest normal number. The multiple is rounded to nearest, ties to even.
int EncodeMagnitude(double magnitude, int mantissa_bits, int min_exponent) {
  const int exponent = std::max(magnitude == 0.0 ? min_exponent : std::ilogb(magnitude), min_exponent);
  const double multiple = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  return (exponent - min_exponent) * (1 << mantissa_bits) + static_cast<int>(multiple);
}

}  // namespace

std::uint8_t EncodeE4M3(float value) {
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (!(magnitude <= 464.0)) return sign | 0x7f;
  return static_cast<std::uint8_t>(sign | EncodeMagnitude(magnitude, 3, -6));
}

std::uint8_t EncodeE2M1(float value) {
  const std::uint8_t sign = std::signbit(value) ? 0x8 : 0;
  const double magnitude = std::min(std::fabs(static_cast<double>(value)), double{kFp4Max});
  return static_cast<std::uint8_t>(sign | EncodeMagnitude(magnitude, 1, 0));
}

std::uint8_t EncodeInt8(float weight, float scale) {
  if (scale == 0.0F) return 0;
  const float quotient = std::clamp(std::nearbyint(weight / scale), -kInt8Max, kInt8Max);
  return static_cast<std::uint8_t>(static_cast<std::int8_t>(quotient));
}

}  // namespace layercast
