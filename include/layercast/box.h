// Boxes of elements, and how the elements of one are arranged in another. Used on both sides. Values.
#pragma once

#include <array>
#include <cstdint>

#include "layercast/export.h"
#include "layercast/tensor.h"

namespace layercast {

// A half-open box of elements: in each dimension d of `rank`, `extent[d]` of them from `begin[d]` on. Value.
struct LAYERCAST_PUBLIC Box {
  static constexpr std::size_t kMaxRank = 5;

  std::uint8_t rank = 0;
  std::array<std::int64_t, kMaxRank> begin{};
  std::array<std::int64_t, kMaxRank> extent{};

  static Box Whole(const Shape& shape);
  // The box of the whole shape, with dimension `axis` narrowed to [first, first + count).
  static Box Slice(const Shape& shape, std::size_t axis, std::int64_t first, std::int64_t count);
  std::int64_t num_elements() const;
  bool operator==(const Box&) const = default;
};

// How the elements of a source box are arranged in a destination box of equal size. By default, they are in the same
// row-major order. Value.
struct LAYERCAST_PUBLIC ElementOrder {
  bool transposed = false;   // the last two dimensions of one box are those of the other, swapped
  bool interleaved = false;  // along the destination's axis 1: first the source's even elements, then its odd ones

  bool is_same() const { return !transposed && !interleaved; }
};

}  // namespace layercast
