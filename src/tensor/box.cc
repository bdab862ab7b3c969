#include "layercast/box.h"

#include <algorithm>
#include <string>

#include "layercast/error.h"

namespace layercast {

Box Box::Whole(const Shape& shape) {
  if (shape.size() > kMaxRank) {
    throw Error(ErrorCode::kInvalidArgument,
                "expected at most " + std::to_string(kMaxRank) + " dimensions, got " + std::to_string(shape.size()));
  }
  Box box;
  box.rank = static_cast<std::uint8_t>(shape.size());
  std::ranges::copy(shape, box.extent.begin());
  return box;
}

Box Box::Slice(const Shape& shape, std::size_t axis, std::int64_t first, std::int64_t count) {
  Box box = Whole(shape);
  box.begin.at(axis) = first;
  box.extent.at(axis) = count;
  return box;
}

std::int64_t Box::num_elements() const {
  std::int64_t elements = 1;
  for (std::size_t axis = 0; axis < rank; ++axis) elements *= extent[axis];
  return elements;
}

}  // namespace layercast
