// -exp(x) of an fp32, by way of fp64. Libraries' exp differ in last bits, a CUDA device's from a host's; this one is
// made of additions, multiplications and fma alone, which every processor rounds alike. Used for what a state space
// decays by, on the host and on a device.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/base/host_device.h"
#include "src/tensor/conversions.h"

namespace layercast {

// e^x within an ulp or so of fp64, for |x| < 700: 2^n * e^r, |r| <= ln(2) / 2, whose series has 14 terms.
LAYERCAST_HOST_DEVICE inline double Exponential(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 0x1.62e42fefa39efp-1, kLn2Low = 0x1.abc9e3b39803fp-56;  // together ln(2)
  constexpr double kToInteger = 0x1.8p52;  // a sum with it has no bits behind the point
  constexpr double kSeries[] = {1.0 / 6227020800.0,
                                1.0 / 479001600.0,
                                1.0 / 39916800.0,
                                1.0 / 3628800.0,
                                1.0 / 362880.0,
                                1.0 / 40320.0,
                                1.0 / 5040.0,
                                1.0 / 720.0,
                                1.0 / 120.0,
                                1.0 / 24.0,
                                1.0 / 6.0,
                                0.5,
                                1.0,
                                1.0};  // 1/13!, 1/12!, ...
  const double n = fma(x, kLog2E, kToInteger) - kToInteger;
  const double r = fma(-n, kLn2Low, fma(-n, kLn2High, x));
  double sum = kSeries[0];
  for (int i = 1; i < 14; ++i) sum = fma(sum, r, kSeries[i]);
  const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023);
  return sum * conversions::BitCast<double>(exponent << 52);
}

LAYERCAST_HOST_DEVICE inline float NegatedExponential(float x) {
  constexpr float kInfinite = 89.0F, kZero = -104.0F;  // beyond them all round to infinity, and to 0
  if (x != x) return x;
  const float bounded = x > kInfinite ? kInfinite : x < kZero ? kZero : x;
  return -static_cast<float>(Exponential(bounded));
}

}  // namespace layercast
