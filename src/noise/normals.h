// Normally distributed numbers from a counter: number i of a name and a seed is the same wherever and in whatever order
// it is drawn. Used by what adds noise to norms, and reproduced in numpy by tests/python/noise.
//
// 1. Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011; Random123),
// with
//    the key (low, high half of the seed) and the counter (low, high half of i / 4; low, high half of the FNV-1a hash
//    of the name), gives four words x0 to x3.
// 2. Box and Muller (1958): of each pair, u = (x0 + 1/2) / 2^32 and v = (x1 + 1/2) / 2^32 give
//    sqrt(-2 ln u) cos(2 pi v) and sqrt(-2 ln u) sin(2 pi v): numbers i % 4 = 0, 1 of the first pair, 2, 3 of the
//    second.
//
// In fp64, by additions, multiplications, divisions and square roots alone, which every processor rounds alike: the
// logarithms of libraries differ in the last bits, and ranks on two machines must agree.
#pragma once

#include <array>
#include <cstdint>

namespace layercast {

using PhiloxBlock = std::array<std::uint32_t, 4>;

// Philox4x32-10 of a counter under a key.
PhiloxBlock Philox(PhiloxBlock counter, std::uint64_t key);

// ln(u) of 0 < u < 1, and cosine and sine of 2 pi v of 0 <= v < 1, within a few ulps.
double Logarithm(double u);
struct TurnPoint {
  double cosine, sine;
};
TurnPoint OnCircle(double v);

// Numbers 4 * block to 4 * block + 3.
std::array<double, 4> Normals(std::uint64_t seed, std::uint64_t name_hash, std::uint64_t block);

}  // namespace layercast
