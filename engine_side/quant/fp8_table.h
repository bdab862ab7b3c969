// The FP8 codes of bf16 weights by table: the faster way of fp8_codes-inl.h, with the same bytes as its arithmetic.
//
// As long as the code is not subnormal, w * (1/s) and w / s round in the same way at every exponent of w. So as a
// function of the bits of |w|, as an integer, the code is a staircase that repeats every 128 integers, 8 codes higher.
// Its steps are more than 8 integers apart, so 8 neighbouring integers have one step at most, and there is a number
// that, added to each of them, turns the step into a carry: with y = bits - first, code = (y + add[y / 8 % 16]) >> 4. A
// scale made from a bf16 amax has one of 128 mantissas, and each of these has its own `add`. A scale that is a power of
// two is that of an amax of 448 times the scale.
#pragma once

#include <cstdint>

namespace layercast {

// A table and where it holds. Value; the array is laid out as vector code loads it.
struct TableUse {
  static constexpr std::uint8_t kFirstAdd = 136;  // add[0] of every table: the stair of code 8 begins at `first`

  alignas(16) std::uint8_t add[16] = {};
  std::uint16_t first = 0;  // the table holds for first <= bits of |w| <= bits of amax
  bool fits = false;        // false if no table fits the scale
};

// The table for weights whose largest magnitude is `amax` and whose scale is `scale`. `division` says that weights are
// divided by the scale; otherwise they are multiplied by 1/s.
TableUse FindTable(bool division, float amax, float scale);

// What the vector code computes for one element, for which the table must hold. For tests.
std::uint8_t CodeByTable(const TableUse& use, std::uint16_t bf16_bits);

}  // namespace layercast
