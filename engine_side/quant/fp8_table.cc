#include "engine_side/quant/fp8_table.h"

#include <array>
#include <cstddef>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"
#include "src/base/bytes/float_bits.h"

namespace layercast {
namespace {

constexpr unsigned kBias = 127;  // the bias of bf16 exponents
constexpr unsigned kMantissas = 128;

// A scale, and how weights are divided by it.
struct Cast {
  bool division;
  float scale;

  std::uint8_t operator()(unsigned bf16_bits) const {
    const float w = FloatOfBits(bf16_bits << 16);
    return EncodeE4M3(division ? w / scale : w * (1.0F / scale));
  }
};

TableUse MakeTable(bool division, unsigned amax_bits) {
  const Cast code{division, TensorScale(FloatOfBits(amax_bits << 16))};
  unsigned first = amax_bits - 15 * kMantissas;
  while (code(first) < 16) ++first;  // not code 8 itself: its stair begins among subnormals
  TableUse table;
  table.first = static_cast<std::uint16_t>(first - kMantissas);
  for (unsigned y = 0; y < kMantissas; y += 8) {
    const unsigned stair = code(first + y) - 8U;
    unsigned last = y + 7;
    while (code(first + last) - 8U != stair) --last;
    table.add[y / 8] = static_cast<std::uint8_t>(16 * (stair + 1) - (last + 1));
  }
  return table;
}

bool IsPowerOfTwo(float scale) { return (BitsOfFloat(scale) & 0x007fffffU) == 0; }

using Tables = std::array<TableUse, std::size_t{2} * kMantissas>;

// The tables for an amax in [1, 2). They are constants of 8 KiB, made at the first use in half a millisecond.
const Tables& AllTables() {
  static const auto tables = [] {
    Tables made;
    for (unsigned i = 0; i < made.size(); ++i)
      made[i] = MakeTable(i >= kMantissas, kBias * kMantissas + i % kMantissas);
    return made;
  }();
  return tables;
}

}  // namespace

TableUse FindTable(bool division, float amax, float scale) {
  constexpr unsigned kMinExponent = 32;   // far from where scales become subnormal or weights lose mantissa bits
  constexpr unsigned kMaxExponent = 253;  // above: in 16 bits, what is far below `first` would look above it
  const float largest = scale * kFp8Max;  // exact if the scale is a power of two, and then less than twice amax
  if (IsPowerOfTwo(scale) && amax <= largest && largest < 2.0F * amax) amax = largest;
  const auto bits = BitsOfFloat(amax);
  const unsigned exponent = bits >> 23;
  const bool is_bf16 = (bits & 0xffffU) == 0;
  if (!is_bf16 || exponent < kMinExponent || exponent > kMaxExponent || scale != TensorScale(amax)) return {};
  const unsigned mantissa = bits >> 16 & (kMantissas - 1);
  TableUse use = AllTables()[(division ? kMantissas : 0) + mantissa];
  use.first = static_cast<std::uint16_t>(use.first + exponent * kMantissas - kBias * kMantissas);
  use.fits = true;
  return use;
}

std::uint8_t CodeByTable(const TableUse& use, std::uint16_t bf16_bits) {
  const unsigned y = (bf16_bits & 0x7fffU) - use.first;
  return static_cast<std::uint8_t>((y + use.add[y / 8 % 16]) >> 4 | (bf16_bits >> 8 & 0x80U));
}

}  // namespace layercast
