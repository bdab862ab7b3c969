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

  std::size_t bytes() const { return high.size() + low.size(); }
};

// Value; borrows.
struct GapBytes {
  std::size_t width = 1;
  std::span<const std::byte> high;
  std::span<const std::byte> low;
};

// The gaps between the bits that are set, of which there are `count`, in the width that takes fewer bytes.
GapList MakeGaps(std::span<const std::uint64_t> words, std::size_t count);

// The most bytes of a list of `count` gaps among `elements`.
std::size_t MostGapBytes(std::size_t elements, std::size_t count, std::size_t width);

// Empty where the list has `count` gaps whose positions all lie below `elements`, else what is wrong.
std::string WrongWithGaps(const GapBytes& gaps, std::size_t elements, std::size_t count);

}  // namespace layercast
