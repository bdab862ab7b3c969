// Numbers of twice a float's precision, as unevaluated sums of two floats, and arithmetic on them. Used by power.cc.
//
// These are Dekker's and Knuth's algorithms for sums, quotients and products, in the variants and with the roundings of
// Sleef, the library whose power has to be met to the bit (https://sleef.org, Boost license): an error term is exact
// where std::fma gives it, and a tail's own rounding errors are ignored. A file that includes this must be compiled
// with -ffp-contract=off, so that nothing else is fused.
#pragma once

#include <cmath>

namespace layercast {

// high + low, where |low| is at most half a unit in the last place of `high`, or nearly so. Value.
struct FloatPair {
  float high = 0.0F;
  float low = 0.0F;
};

// The exact sum of two floats.
inline FloatPair ExactSum(float a, float b) {
  const float sum = a + b;
  const float b_there = sum - a;
  return {sum, (a - (sum - b_there)) + (b - b_there)};
}

// The sum of two pairs of which `a` is the larger one.
inline FloatPair SumOrdered(const FloatPair& a, const FloatPair& b) {
  const float sum = a.high + b.high;
  return {sum, (((a.high - sum) + b.high) + a.low) + b.low};
}

// The sum of two pairs in any order.
inline FloatPair Sum(const FloatPair& a, const FloatPair& b) {
  const FloatPair sum = ExactSum(a.high, b.high);
  return {sum.high, sum.low + (a.low + b.low)};
}

inline FloatPair Product(const FloatPair& a, float b) {
  const float product = a.high * b;
  return {product, std::fma(a.low, b, std::fma(a.high, b, -product))};
}

inline FloatPair Product(const FloatPair& a, const FloatPair& b) {
  const float product = a.high * b.high;
  return {product, std::fma(a.high, b.low, std::fma(a.low, b.high, std::fma(a.high, b.high, -product)))};
}

inline FloatPair Square(const FloatPair& a) {
  const float square = a.high * a.high;
  return {square, std::fma(a.high + a.high, a.low, std::fma(a.high, a.high, -square))};
}

inline FloatPair Quotient(const FloatPair& a, const FloatPair& b) {
  const float reciprocal = 1.0F / b.high;
  const float quotient = a.high * reciprocal;
  const float lost = std::fma(reciprocal, a.high, -quotient);
  const float correction = std::fma(-b.low, reciprocal, std::fma(-b.high, reciprocal, 1.0F));
  return {quotient, std::fma(quotient, correction, std::fma(a.low, reciprocal, lost))};
}

// The same number, with all of it that a float can hold in `high`.
inline FloatPair Normalized(const FloatPair& a) {
  const float high = a.high + a.low;
  return {high, (a.high - high) + a.low};
}

}  // namespace layercast
