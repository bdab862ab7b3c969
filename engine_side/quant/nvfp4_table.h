// The e2m1 codes of bf16 weights by integer arithmetic: the faster way of nvfp4_kernel.cc, with the same bytes as its
// fp32 arithmetic.
//
// The bits u of a weight's magnitude grow with it, so its code is the number of thresholds, out of seven, that u has
// reached. They are where u's product with the block's factor rounds up to 0.5, 1, 1.5, 2, 3, 4 and 6. The factor is g
// / sf. Apart from its exponent, sf has one of eight values; its exponent moves all thresholds by whole exponents of u.
// From the second threshold on, they are at least 51 apart. So if u is counted from an origin below the second one, 16
// groups of 32 cover all that a block can have (up to 6.375 times 1 / factor), and each group has at most one
// threshold: code = (u % 32 + steps[u / 32]) / 32, or 0 below the first threshold. In a block whose sf is 0, no weight
// reaches any threshold, and no code has a sign.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layercast {

struct Nvfp4Table {
  static constexpr std::size_t kScaleCodes = 128;  // codes that sf may have; it has no sign
  static constexpr std::size_t kMantissas = 8;
  static constexpr std::uint16_t kNoOrigin = 0xffff;  // the origin for sf's code 0

  // `global_factor` is the weight's g.
  explicit Nvfp4Table(float global_factor);

  float factor[kScaleCodes] = {};                       // g / sf; 0 for 0 and NaN
  alignas(16) std::uint8_t steps[kMantissas][16] = {};  // by sf's mantissa
  std::uint32_t origin[kScaleCodes] = {};               // what u is counted from, if u is larger; in both halves
  std::uint32_t below_first[kScaleCodes] = {};          // the first threshold, less one; in both halves
  std::uint8_t min_code = kScaleCodes - 1;              // the smallest code of sf for which there are thresholds
};

// What the vector code computes for one element of a block that has thresholds, or whose sf is 0. For tests.
std::uint8_t CodeByTable(const Nvfp4Table& table, std::uint8_t scale_code, std::uint16_t bf16_bits);

}  // namespace layercast
