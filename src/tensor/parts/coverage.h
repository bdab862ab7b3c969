// Whether boxes tile a tensor exactly once, which counting elements alone cannot tell. Used by the load plan for each
// parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "layercast/box.h"
#include "layercast/tensor.h"

namespace layercast {

// Whether the boxes share an element. Neither may be empty.
bool Overlap(const Box& a, const Box& b);

struct Coverage {
  std::int64_t elements = 0;                                  // of all boxes together
  std::vector<std::pair<std::size_t, std::size_t>> overlaps;  // indices of boxes that share elements; at most 64 pairs

  // Whether the boxes tile the tensor: no two overlap, and together they are as large as it is.
  bool Tiles(const Shape& shape) const { return overlaps.empty() && elements == NumElements(shape); }
};

// Computes the coverage by `boxes`, which must lie inside the tensor. Takes O(n log n) time if the boxes are slices
// along one axis.
Coverage Cover(std::span<const Box> boxes);

}  // namespace layercast
