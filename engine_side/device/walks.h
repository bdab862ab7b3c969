// The walks that a reload makes: into a parameter, and over a captured buffer.
#pragma once

#include <cstdint>
#include <optional>

#include "engine_side/device/element_walk.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/placement.h"

namespace layercast {

// Where the elements of a placement's source go, in the source's row-major order: `box` and `order` of the parameter of
// this shape.
ElementWalk WalkInto(const Shape& shape, const Box& box, ElementOrder order);
// A captured buffer's elements in row-major order. Empty: their strides are more than a walk can hold.
std::optional<ElementWalk> WalkOver(const CapturedBuffer& buffer);
// Whether they lie one behind the other.
bool IsPacked(const CapturedBuffer& buffer);

std::int64_t NumElements(const ElementWalk& walk);
// Whether elements [first, first + count) of the walk lie one behind the other.
bool IsOneRun(const ElementWalk& walk, std::int64_t first, std::int64_t count);

// Rows of elements, each of which lie one behind the other.
struct WalkRows {
  std::int64_t at = 0;  // of the first, in the tensor
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;  // from row to row
  bool operator==(const WalkRows&) const = default;
};
// Elements [first, first + count) of the walk as such; empty where they are none. One run is one row.
std::optional<WalkRows> RowsOf(const ElementWalk& walk, std::int64_t first, std::int64_t count);

}  // namespace layercast
