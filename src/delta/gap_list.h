// Positions as gaps (change_positions.h): what they would take, and their making and checking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace layercast {

// Value.
struct GapList {
  std::size_t width = 1;  // bytes of a gap that is not long: 1 or 2
  std::vector<std::byte> high;
  std::vector<std::byte> low;
};

// Value; borrows.
struct GapBytes {
  std::size_t width = 1;
  std::span<const std::byte> high;
  std::span<const std::byte> low;
};

// The bytes that the gaps between `changed` set bits take, by width 1 and 2.
struct GapSizes {
  std::size_t narrow = 0;
  std::size_t wide = 0;

  std::size_t best_width() const { return wide < narrow ? 2 : 1; }
};
GapSizes SizesOfGaps(std::span<const std::uint64_t> words);

GapList MakeGaps(std::span<const std::uint64_t> words, std::size_t count, std::size_t width);

// The most bytes of a list of `count` gaps among `elements`.
std::size_t MostGapBytes(std::size_t elements, std::size_t count, std::size_t width);

// Empty where the list has `count` gaps whose positions all lie below `elements`, else what is wrong.
std::string WrongWithGaps(const GapBytes& gaps, std::size_t elements, std::size_t count);

}  // namespace layercast
