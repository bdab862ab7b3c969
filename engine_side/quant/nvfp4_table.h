// The e2m1 codes of bf16 weights by integers: the faster way of nvfp4_kernel.cc, with the same bytes as its arithmetic.
//
// The bits of a weight's magnitude, u, grow with it, so its code is how many of seven thresholds u has reached: those
// where u's product with the block's factor rounds up to 0.5, 1, 1.5, 2, 3, 4, 6. The factor is g / sf, and but for its
// exponent sf has one of eight values; its exponent moves all thresholds by whole exponents of u. From the second
// threshold on they are at least 51 apart. So with u counted from an origin below the second one, 16 groups of 32 cover
// all that a block has (up to 6.375 times 1 / factor), and each has one threshold at most:
// code = (u % 32 + steps[u / 32]) / 32, or 0 below the first threshold. In a block whose sf is 0, no weight reaches
// any, and none has a sign.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layercast {

struct Nvfp4Table {
  static constexpr std::size_t kScaleCodes = 128;  // of sf, without the sign
  static constexpr std::size_t kMantissas = 8;
  static constexpr std::uint16_t kNoOrigin = 0xffff;  // of sf's code 0

  // For a weight of whose values g is made.
  explicit Nvfp4Table(float global_factor);

  float factor[kScaleCodes] = {};                       // g / sf; 0 for 0 and NaN
  alignas(16) std::uint8_t steps[kMantissas][16] = {};  // by sf's mantissa
  std::uint32_t origin[kScaleCodes] = {};               // what u is counted from, if it is more; in both halves
  std::uint32_t below_first[kScaleCodes] = {};          // the first threshold, less one; likewise
  std::uint8_t min_code = kScaleCodes - 1;              // codes of sf from here on have thresholds
};

// What the vector code computes, for one element of a block that has thresholds, or whose sf is 0.
std::uint8_t CodeByTable(const Nvfp4Table& table, std::uint8_t scale_code, std::uint16_t bf16_bits);

}  // namespace layercast
