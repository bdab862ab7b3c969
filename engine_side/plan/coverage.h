// Whether boxes tile a tensor exactly once: never by counting alone. Used by the load plan, parameter by parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "layercast/model/placement.h"
#include "layercast/tensor.h"

namespace layercast {

// Whether they share an element; neither is empty.
bool Overlap(const Box& a, const Box& b);

struct Coverage {
  std::int64_t elements = 0;                                  // of all boxes together
  std::vector<std::pair<std::size_t, std::size_t>> overlaps;  // pairs of boxes that share elements; the first few

  // No two boxes overlap and together they are as large as the tensor: they tile it.
  bool Tiles(const Shape& shape) const { return overlaps.empty() && elements == NumElements(shape); }
};

// The boxes must lie inside the tensor. n log n for boxes that are slices along one axis.
Coverage Cover(std::span<const Box> boxes);

}  // namespace layercast
