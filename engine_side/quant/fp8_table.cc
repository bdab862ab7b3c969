#include "engine_side/quant/fp8_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"

namespace layercast {
namespace {

constexpr unsigned kBias = 127;  // of bf16 exponents
constexpr unsigned kMantissas = 128;

float Bf16(unsigned exponent, unsigned mantissa) {
  return std::bit_cast<float>(static_cast<std::uint32_t>((exponent << 7 | mantissa) << 16));
}

// d[m], from the code of 1.m * 2^-2, which is neither subnormal nor above the largest.
std::uint8_t Difference(bool division, float scale, unsigned mantissa) {
  constexpr unsigned kExponent = kBias - 2;
  const float w = Bf16(kExponent, mantissa);
  const std::uint8_t code = EncodeE4M3(division ? w / scale : w * (1.0F / scale));
  return static_cast<std::uint8_t>(code - 8 * kExponent - (mantissa >> 4));
}

TableUse MakeTable(bool division, unsigned amax_mantissa) {
  const float scale = TensorScale(Bf16(kBias, amax_mantissa));
  TableUse table;
  for (unsigned group = 0; group < 16; ++group) {
    const unsigned first = 8 * group;
    table.base[group] = Difference(division, scale, first);
    unsigned last = first + 7;
    while (Difference(division, scale, last) != table.base[group]) --last;
    table.threshold[group] = static_cast<std::uint8_t>(last);
  }
  return table;
}

using Tables = std::array<TableUse, std::size_t{2} * kMantissas>;

// Constants for an amax in [1, 2): 12 KiB, made at the first use in half a millisecond.
const Tables& AllTables() {
  static const auto tables = [] {
    Tables made;
    for (unsigned i = 0; i < made.size(); ++i) made[i] = MakeTable(i >= kMantissas, i % kMantissas);
    return made;
  }();
  return tables;
}

}  // namespace

TableUse FindTable(bool division, float amax, float scale) {
  // Far from where scales become subnormal or weights lose mantissa bits.
  constexpr unsigned kMinExponent = 32;
  constexpr unsigned kInfinity = 255;
  const auto bits = std::bit_cast<std::uint32_t>(amax);
  const unsigned exponent = bits >> 23;
  const bool is_bf16 = (bits & 0xffffU) == 0;
  if (!is_bf16 || exponent < kMinExponent || exponent >= kInfinity || scale != TensorScale(amax)) return {};
  const unsigned mantissa = bits >> 16 & (kMantissas - 1);
  TableUse use = AllTables()[(division ? kMantissas : 0) + mantissa];
  for (std::uint8_t& base : use.base) base = static_cast<std::uint8_t>(base + 8 * (kBias - exponent));
  // The smallest normal code is 2^-6, amax is 448: w >= amax / 1.75 * 2^-14 will do, so one of these exponents. The
  // high byte of w holds all of its exponent but one bit.
  const unsigned min_exponent = exponent - (mantissa <= 96 ? 14 : 13);
  std::fill_n(use.min_high, 16, static_cast<std::uint8_t>((min_exponent + 1) / 2));
  use.fits = true;
  return use;
}

std::uint8_t CodeByTable(const TableUse& use, std::uint16_t bf16_bits) {
  const unsigned mantissa = bf16_bits & (kMantissas - 1);
  const unsigned group = mantissa / 8;
  const unsigned step = mantissa > use.threshold[group] ? 1 : 0;
  const unsigned code = use.base[group] + step + (bf16_bits >> 4);
  return static_cast<std::uint8_t>((code & 0x7fU) | (bf16_bits >> 8 & 0x80U));
}

}  // namespace layercast
