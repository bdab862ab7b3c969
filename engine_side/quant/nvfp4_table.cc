#include "engine_side/quant/nvfp4_table.h"

#include <algorithm>
#include <array>

#include "src/base/bytes/float_bits.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

constexpr int kThresholds = 7;
constexpr float kTies[kThresholds] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
constexpr float kBeyondBlocks = 6.5F;  // above all products: sf is rounded by at most a 16th of itself
constexpr unsigned kUnitExponent = 7;  // exponent of the scale codes for 1 to 1.875

unsigned Bf16Bits(float value) { return BitsOfFloat(value) >> 16; }

// Whether a product reaches a threshold. A tie goes to the even code, so at every other threshold it goes up.
bool Reaches(int threshold, float product) {
  return threshold % 2 == 0 ? product > kTies[threshold] : product >= kTies[threshold];
}

unsigned FirstBits(int threshold, float factor) {
  unsigned bits = Bf16Bits(kTies[threshold] / factor);
  while (Reaches(threshold, FloatOfBits(bits << 16) * factor)) --bits;
  while (!Reaches(threshold, FloatOfBits(bits << 16) * factor)) ++bits;
  return bits;
}

// The entry of a group in Nvfp4Table::steps. `thresholds` are counted from the origin.
std::uint8_t Step(const std::array<unsigned, kThresholds>& thresholds, unsigned group) {
  const unsigned first = 32 * group;
  unsigned code = 1;
  unsigned to_next = 32;
  for (int i = 1; i < kThresholds; ++i) {
    if (thresholds[i] <= first) ++code;
    if (thresholds[i] > first && thresholds[i] < first + 32) to_next = thresholds[i] - first;
  }
  return static_cast<std::uint8_t>(32 * code + 32 - to_next);
}

}  // namespace

Nvfp4Table::Nvfp4Table(float global_factor) {
  for (unsigned code = 1; code < kScaleCodes - 1; ++code) {
    factor[code] = global_factor / static_cast<float>(DecodeElement(DType::kF8E4M3, code));
  }
  origin[0] = below_first[0] = kNoOrigin * 0x10001U;
  constexpr unsigned kNormal = 128;  // the bits of the smallest bf16 that is not subnormal
  constexpr unsigned kSmallestExponent = 1;
  const float smallest = kTies[0] / factor[kSmallestExponent << 3];
  if (Bf16Bits(smallest) < 2 * kNormal) return;
  min_code = kSmallestExponent << 3;
  for (unsigned mantissa = 0; mantissa < kMantissas; ++mantissa) {
    const float unit = factor[kUnitExponent << 3 | mantissa];
    const unsigned start = Bf16Bits(kBeyondBlocks / unit) - 511;
    std::array<unsigned, kThresholds> thresholds{};
    for (int i = 0; i < kThresholds; ++i) thresholds[i] = FirstBits(i, unit) - start;
    for (unsigned group = 0; group < 16; ++group) steps[mantissa][group] = Step(thresholds, group);
    for (unsigned exponent = kSmallestExponent; exponent < 16; ++exponent) {
      const unsigned code = exponent << 3 | mantissa;
      const unsigned moved = start + (exponent << 7) - (kUnitExponent << 7);
      origin[code] = moved * 0x10001U;
      below_first[code] = (moved + thresholds[0] - 1) * 0x10001U;
    }
  }
}

std::uint8_t CodeByTable(const Nvfp4Table& table, std::uint8_t scale_code, std::uint16_t bf16_bits) {
  if (scale_code == 0) return 0;
  const unsigned magnitude = bf16_bits & 0x7fffU;
  const unsigned origin = table.origin[scale_code] & 0xffffU;
  const unsigned above = magnitude > origin ? magnitude - origin : 0;
  const unsigned code = (above % 32 + table.steps[scale_code % 8][above / 32 % 16]) / 32;
  const unsigned first = table.below_first[scale_code] & 0xffffU;
  const unsigned reached = magnitude > first ? magnitude - first : 0;
  return static_cast<std::uint8_t>(std::min(code, reached) | (bf16_bits >> 12 & 8U));
}

}  // namespace layercast
