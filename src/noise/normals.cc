#include "src/noise/normals.h"

#include <cmath>

namespace layercast {
namespace {

constexpr std::uint32_t kMultipliers[] = {0xD2511F53, 0xCD9E8D57};
constexpr std::uint32_t kWeyl[] = {0x9E3779B9, 0xBB67AE85};
constexpr int kRounds = 10;
constexpr double kWord = 4294967296.0;  // 2^32

constexpr std::uint32_t Low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t High(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

// Coefficients of x^0, x^2, ... or x^1, x^3, ..., by the powers of x^2.
template <std::size_t n>
double Polynomial(const double (&coefficients)[n], double square) {
  double sum = coefficients[n - 1];
  for (std::size_t i = n - 1; i-- > 0;) sum = sum * square + coefficients[i];
  return sum;
}

double InsideInterval(std::uint32_t word) { return (static_cast<double>(word) + 0.5) / kWord; }

}  // namespace

PhiloxBlock Philox(PhiloxBlock counter, std::uint64_t key) {
  std::uint32_t keys[] = {Low(key), High(key)};
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = std::uint64_t{kMultipliers[0]} * counter[0];
    const std::uint64_t second = std::uint64_t{kMultipliers[1]} * counter[2];
    counter = {High(second) ^ counter[1] ^ keys[0], Low(second), High(first) ^ counter[3] ^ keys[1], Low(first)};
    keys[0] += kWeyl[0];
    keys[1] += kWeyl[1];
  }
  return counter;
}

// u = m * 2^e with sqrt(1/2) <= m < sqrt(2); ln(m) = 2 artanh((m - 1) / (m + 1)), whose series has 11 terms.
double Logarithm(double u) {
  constexpr double kLn2 = 0.6931471805599453, kRootOfHalf = 0.7071067811865476;
  constexpr double kSeries[] = {1.0,        1.0 / 3.0,  1.0 / 5.0,  1.0 / 7.0,  1.0 / 9.0, 1.0 / 11.0,
                                1.0 / 13.0, 1.0 / 15.0, 1.0 / 17.0, 1.0 / 19.0, 1.0 / 21.0};
  int exponent = 0;
  double m = std::frexp(u, &exponent);
  if (m < kRootOfHalf) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  return exponent * kLn2 + 2 * s * Polynomial(kSeries, s * s);
}

// v is within an eighth of a turn of k quarters, and there the series have 9 terms.
TurnPoint OnCircle(double v) {
  constexpr double kTwoPi = 6.283185307179586;
  constexpr double kSine[] = {1.0,
                              -1.0 / 6.0,
                              1.0 / 120.0,
                              -1.0 / 5040.0,
                              1.0 / 362880.0,
                              -1.0 / 39916800.0,
                              1.0 / 6227020800.0,
                              -1.0 / 1307674368000.0,
                              1.0 / 355687428096000.0};
  constexpr double kCosine[] = {1.0,
                                -1.0 / 2.0,
                                1.0 / 24.0,
                                -1.0 / 720.0,
                                1.0 / 40320.0,
                                -1.0 / 3628800.0,
                                1.0 / 479001600.0,
                                -1.0 / 87178291200.0,
                                1.0 / 20922789888000.0};
  const double quarters = std::floor(4 * v + 0.5);
  const double angle = kTwoPi * (v - quarters / 4);
  const double sine = angle * Polynomial(kSine, angle * angle);
  const double cosine = Polynomial(kCosine, angle * angle);
  switch (static_cast<int>(quarters) % 4) {
    case 0: return {cosine, sine};
    case 1: return {-sine, cosine};
    case 2: return {-cosine, -sine};
    default: return {sine, -cosine};
  }
}

std::array<double, 4> Normals(std::uint64_t seed, std::uint64_t name_hash, std::uint64_t block) {
  const PhiloxBlock words = Philox({Low(block), High(block), Low(name_hash), High(name_hash)}, seed);
  std::array<double, 4> normals{};
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2 * Logarithm(InsideInterval(words[pair])));
    const TurnPoint at = OnCircle(InsideInterval(words[pair + 1]));
    normals[pair] = radius * at.cosine;
    normals[pair + 1] = radius * at.sine;
  }
  return normals;
}

}  // namespace layercast
