// The codes of bf16 weights by table: the faster way of fp8_codes-inl.h, with the same bytes as its arithmetic.
//
// As long as the code is not a subnormal one, w * (1/s) and w / s round alike at every exponent of w: over the bits of
// |w|, as integers, codes are stairs that go on alike every 128, 8 codes further up. Stairs are longer than 8, so a
// group of 8 neighbouring bits has one step at most, and there is a number to add to them that makes the step a carry:
// with y = bits - first, code = (y + add[y / 8 % 16]) >> 4. A scale made from a bf16 amax has one of 128 mantissas,
// and each of those its own `add`. A power of two is the scale of 448 times itself.
#pragma once

#include <cstdint>

namespace layercast {

// A table and where it holds. Value; the array is as vector code loads it.
struct TableUse {
  static constexpr std::uint8_t kFirstAdd = 136;  // add[0] of every table: `first` begins the stair of code 8

  alignas(16) std::uint8_t add[16] = {};
  std::uint16_t first = 0;  // it holds for first <= bits of |w| <= bits of amax
  bool fits = false;        // false: no table fits the scale
};

// For weights whose largest magnitude is `amax` and whose scale is `scale`, divided by or multiplied by 1/s.
TableUse FindTable(bool division, float amax, float scale);

// What the vector code computes, for one element that the table holds for.
std::uint8_t CodeByTable(const TableUse& use, std::uint16_t bf16_bits);

}  // namespace layercast
