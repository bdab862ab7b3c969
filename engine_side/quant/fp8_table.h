// The codes of bf16 weights by table: the faster way of fp8_codes-inl.h, with the same bytes as its arithmetic.
//
// As long as the code is not a subnormal one, w * (1/s) and w / s round alike at every exponent of w. So with mantissa
// m and biased exponent e of w, code = (8 e + (m >> 4) + d[m]) mod 256, where d depends on the scale alone. A scale
// made from a bf16 amax has one of 128 mantissas, and within 8 neighbouring m, d grows by at most 1, at most once: 32
// bytes describe it.
#pragma once

#include <cstdint>

namespace layercast {

// A table and where it holds. Value; the arrays are as vector code loads them.
struct TableUse {
  alignas(16) std::uint8_t base[16] = {};       // d of the first of 8 neighbouring mantissas
  alignas(16) std::uint8_t threshold[16] = {};  // the last mantissa with this d
  alignas(16) std::uint8_t min_high[16] = {};   // all the same: it holds for min_high << 8 <= bits of |w| <= amax
  bool fits = false;                            // false: no table fits the scale
};

// For weights whose largest magnitude is `amax` and whose scale is `scale`, divided by or multiplied by 1/s.
TableUse FindTable(bool division, float amax, float scale);

// What the vector code computes, for one element that the table holds for.
std::uint8_t CodeByTable(const TableUse& use, std::uint16_t bf16_bits);

}  // namespace layercast
