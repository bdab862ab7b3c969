// The walks that a reload makes: into a parameter, and over a captured buffer. Used by all that moves elements on a
// device.
#pragma once

#include <cstdint>
#include <optional>

#include "engine_side/reload/device/element_walk.h"
#include "layercast/captured_buffer.h"
#include "layercast/model/placement.h"

namespace layercast {

// Where the elements of a placement's source go, in the source's row-major order. `shape` is the parameter's; `box` and
// `order` say where in it they go, and how they are ordered there.
ElementWalk WalkInto(const Shape& shape, const Box& box, ElementOrder order);
// A captured buffer's elements in row-major order. Empty if its strides are too irregular for a walk.
std::optional<ElementWalk> WalkOver(const CapturedBuffer& buffer);
// Whether a captured buffer's elements lie one behind the other, in row-major order.
bool IsPacked(const CapturedBuffer& buffer);

std::int64_t NumElements(const ElementWalk& walk);
// Whether elements [first, first + count) of the walk lie one behind the other.
bool IsOneRun(const ElementWalk& walk, std::int64_t first, std::int64_t count);

// Rows whose elements lie one behind the other. Value; all members count elements.
struct WalkRows {
  std::int64_t at = 0;  // the first row's place in the tensor
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;  // from row to row
  bool operator==(const WalkRows&) const = default;
};
// Elements [first, first + count) of the walk as rows. Empty if they are not rows of equal length. A single run is one
// row.
std::optional<WalkRows> RowsOf(const ElementWalk& walk, std::int64_t first, std::int64_t count);

}  // namespace layercast
