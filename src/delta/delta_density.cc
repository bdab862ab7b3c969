#include "src/delta/delta_density.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/delta/change_list.h"
#include "src/delta/change_positions.h"
#include "src/delta/element_bits.h"

namespace layercast {
namespace {

// Measured on steps of AdamW, in bits per element (docs/delta.md): most steps are one up or one down.
constexpr double kStepBits = 1.8;
constexpr double kHeadBytes = 80.0;
constexpr double kStreamBytes = 17.0;

// What Huffman coding leaves of dense elements.
double DenseShare(std::size_t element_bytes) {
  if (element_bytes == 1) return 0.81;
  return element_bytes == 2 ? 0.67 : 0.85;
}

// Entropy of a bit that is set with this probability.
double BitEntropy(double p) { return p <= 0.0 || p >= 1.0 ? 0.0 : -p * std::log2(p) - (1.0 - p) * std::log2(1.0 - p); }

// Bits of a byte of the bitmap after Huffman coding, which cannot give less than one to the byte that most are: 0.
double BitmapByteBits(double density) {
  const double bits = 8.0 * BitEntropy(density);
  const double zero = std::pow(1.0 - density, 8.0);
  return zero > 0.5 ? bits + 1.0 - BitEntropy(zero) : bits;
}

// Bytes of a gap of this width where changes are as likely everywhere.
double PlainGapBytes(double density, std::size_t width) {
  const double units = static_cast<double>(kLongGap) * static_cast<double>(std::size_t{1} << GapUnitShift(width));
  const double goes_on = std::pow(1.0 - density, units);
  return static_cast<double>(width) + goes_on / std::max(1.0 - goes_on, density);
}

}  // namespace

std::size_t DensityMeter::Add(std::span<const std::byte> base, std::span<const std::byte> next) {
  words_.resize(NumWords(base.size() / element_bytes_));
  const std::size_t changed = ChangedBits(base, next, element_bytes_, words_);
  if (changed != 0) {
    std::size_t first = 0;
    while (words_[first] == 0) ++first;
    std::size_t last = words_.size() - 1;
    while (words_[last] == 0) --last;
    if (count_.changed == 0) {
      count_.first = count_.elements + first * kWordBits + static_cast<std::size_t>(std::countr_zero(words_[first]));
    }
    count_.end = count_.elements + last * kWordBits + static_cast<std::size_t>(std::bit_width(words_[last]));
  }
  count_.elements += base.size() / element_bytes_;
  count_.changed += changed;
  return changed;
}

double DeltaEstimate::least() const { return std::min({range, gaps, bitmap, dense}); }

DeltaEstimate EstimateDelta(const DeltaCount& count, std::size_t element_bytes, DeltaEffort effort) {
  const auto elements = static_cast<double>(count.elements);
  const auto changed = static_cast<double>(count.changed);
  const auto range = static_cast<double>(count.end - count.first);
  const double dense = elements * static_cast<double>(element_bytes);
  const double density = count.density();
  if (effort == DeltaEffort::kFast) {
    const double gap = std::min(PlainGapBytes(density, 1), PlainGapBytes(density, 2));
    return {.range = kHeadBytes + 2 * kStreamBytes + range,
            .gaps = kHeadBytes + 4 * kStreamBytes + changed * (gap + 1.0),
            .bitmap = kHeadBytes + 3 * kStreamBytes + elements / 8.0 + changed,
            .dense = kHeadBytes + kStreamBytes + dense};
  }
  // Huffman codes have at least one bit for a byte.
  const double gap_bits = density > 0.0 ? std::max(1.0, BitEntropy(density) / density) : 0.0;
  const double zero_bits = range > 0.0 ? BitEntropy(changed / range) : 0.0;
  const double step_bytes = changed * kStepBits / 8.0;
  return {.range = kHeadBytes + 2 * kStreamBytes + range * std::max(1.0, zero_bits) / 8.0 + step_bytes,
          .gaps = kHeadBytes + 4 * kStreamBytes + changed * gap_bits / 8.0 + step_bytes,
          .bitmap = kHeadBytes + 3 * kStreamBytes + elements / 8.0 * BitmapByteBits(density) / 8.0 + step_bytes,
          .dense = kHeadBytes + kStreamBytes + dense * DenseShare(element_bytes)};
}

}  // namespace layercast
