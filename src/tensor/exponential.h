// -exp(x) of an fp32, computed in fp64. The exp of libraries differs in the last bits, for instance between a CUDA
// device and a host. This one consists of additions, multiplications and fma alone, which every processor rounds alike.
// Used for the decay of state spaces, on the host and on a device.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/base/digest/host_device.h"
#include "src/tensor/conversions.h"

namespace layercast {

// e^x for |x| < 700, within about an ulp of fp64: 2^n * e^r, where |r| <= ln(2) / 2, and e^r is a series of 14 terms.
LAYERCAST_HOST_DEVICE inline double Exponential(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 0x1.62e42fefa39efp-1, kLn2Low = 0x1.abc9e3b39803fp-56;  // their sum is ln(2)
  constexpr double kToInteger = 0x1.8p52;                                             // adding it rounds to an integer
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
  constexpr float kInfinite = 89.0F, kZero = -104.0F;  // e^x rounds to infinity above the one, to 0 below the other
  if (x != x) return x;
  const float bounded = x > kInfinite ? kInfinite : x < kZero ? kZero : x;
  return -static_cast<float>(Exponential(bounded));
}

}  // namespace layercast
