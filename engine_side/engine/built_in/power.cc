#include "engine_side/engine/built_in/power.h"

#include <cmath>
#include <cstddef>

#include "engine_side/engine/built_in/float_pair.h"

namespace layercast {
namespace {

constexpr std::size_t kBlock = 16;

// The algorithm and its constants are those of Sleef's powf with an error of at most one unit in the last place
// (Sleef_powf8_u10; https://sleef.org, Boost license): power = exp(exponent * log(base)), with a logarithm of twice the
// precision. Both series are fitted to the range that the argument is reduced to.

// log(value) = exponent * log(2) + 2 artanh(x), where x = (mantissa - 1) / (mantissa + 1) and mantissa is in
// [0.75, 1.5).
FloatPair Log(float value) {
  int exponent = 0;
  float mantissa = std::frexp(value, &exponent);  // in [0.5, 1)
  if (mantissa < 0.75F) {
    mantissa *= 2.0F;
    --exponent;
  }
  const FloatPair x = Quotient(ExactSum(-1.0F, mantissa), ExactSum(1.0F, mantissa));
  const FloatPair square = Square(x);
  float series = 0.240320354700088500976562F;
  series = std::fma(series, square.high, 0.285112679004669189453125F);
  series = std::fma(series, square.high, 0.400007992982864379882812F);
  constexpr FloatPair kTwoThirds = {0.66666662693023681640625F, 3.69183861259614332084311e-09F};
  constexpr FloatPair kLog2 = {0.69314718246459960938F, -1.904654323148236017e-09F};
  const FloatPair cubic = Product(Product(square, x), Sum(Product(square, series), kTwoThirds));
  const FloatPair linear = {2.0F * x.high, 2.0F * x.low};
  return SumOrdered(SumOrdered(Product(kLog2, static_cast<float>(exponent)), linear), cubic);
}

// exp(value) = 2 ^ exponent * exp(rest), where |rest| is at most log(2) / 2.
float Exp(const FloatPair& value) {
  constexpr float kReciprocalOfLog2 = 1.442695040888963407359924681001892137F;
  constexpr float kLog2High = 0.693145751953125F;  // short, so that its product with an exponent is exact
  constexpr float kLog2Low = 1.428606765330187045e-06F;
  const float exponent = std::nearbyint((value.high + value.low) * kReciprocalOfLog2);
  FloatPair rest = Sum(value, {exponent * -kLog2High, 0.0F});
  rest = Normalized(Sum(rest, {exponent * -kLog2Low, 0.0F}));
  float series = 0.00136324646882712841033936F;
  series = std::fma(series, rest.high, 0.00836596917361021041870117F);
  series = std::fma(series, rest.high, 0.0416710823774337768554688F);
  series = std::fma(series, rest.high, 0.166665524244308471679688F);
  series = std::fma(series, rest.high, 0.499999850988388061523438F);
  const FloatPair power = SumOrdered({1.0F, 0.0F}, SumOrdered(rest, Product(Square(rest), series)));
  return std::ldexp(power.high + power.low, static_cast<int>(exponent));
}

}  // namespace

std::vector<float> Powers(float base, std::span<const float> exponents) {
  const FloatPair log = Log(base);
  const std::size_t in_blocks = exponents.size() / kBlock * kBlock;
  std::vector<float> powers(exponents.size());
  for (std::size_t i = 0; i < powers.size(); ++i) {
    powers[i] = i < in_blocks ? Exp(Product(log, exponents[i])) : std::pow(base, exponents[i]);
  }
  return powers;
}

}  // namespace layercast
