#include "src/tensor/walk.h"

#include <array>

#include "layercast/box.h"
#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {
namespace {

void CheckBox(const Shape& shape, const Box& box) {
  bool inside = box.rank == shape.size();
  for (std::size_t axis = 0; inside && axis < box.rank; ++axis) {
    inside = box.begin[axis] >= 0 && box.extent[axis] >= 0 && box.begin[axis] <= shape[axis] &&
             box.extent[axis] <= shape[axis] - box.begin[axis];
  }
  if (!inside) throw Error(ErrorCode::kInvalidArgument, "a box leaves its tensor " + ToString(shape));
}

}  // namespace

bool Walk::Append(std::int64_t next_extent, std::int64_t next_stride) {
  if (next_extent == 1) return true;
  if (rank > 0 && stride[rank - 1] == next_extent * next_stride) {
    extent[rank - 1] *= next_extent;
    stride[rank - 1] = next_stride;
    return true;
  }
  if (rank == kMaxRank) return false;
  extent[rank] = next_extent;
  stride[rank++] = next_stride;
  return true;
}

// An interleaved axis becomes two dimensions: the source's element i goes to i % 2 * (extent / 2) + i / 2.
Walk Walk::Into(const Shape& shape, const Box& box, ElementOrder order) {
  CheckBox(shape, box);
  LAYERCAST_CHECK(order.is_same() || box.rank == 2 || box.rank == 3);
  Walk walk;
  std::array<std::int64_t, Box::kMaxRank> strides{};  // of the tensor
  std::int64_t behind = 1;
  for (std::size_t d = box.rank; d-- > 0; behind *= shape[d]) {
    strides[d] = behind;
    walk.offset += box.begin[d] * behind;
  }
  bool fits = true;
  for (std::size_t axis = 0; axis < box.rank; ++axis) {
    const bool swapped = order.transposed && axis + 2 >= box.rank;
    const std::size_t d = swapped ? 2U * box.rank - 3 - axis : axis;
    if (order.interleaved && d == 1) {
      const std::int64_t half = box.extent[d] / 2;
      LAYERCAST_CHECK(box.extent[d] == 2 * half);
      fits = fits && walk.Append(half, strides[d]) && walk.Append(2, half * strides[d]);
    } else {
      fits = fits && walk.Append(box.extent[d], strides[d]);
    }
  }
  LAYERCAST_CHECK(fits);  // a box has at most kMaxRank dimensions, and a reordered one fewer
  return walk;
}

Walk Walk::Into(const Shape& shape, const Box& box) { return Into(shape, box, {}); }

std::optional<Walk> Walk::Over(const Shape& shape, const std::vector<std::int64_t>& strides) {
  Walk walk;
  if (strides.empty()) walk.Append(NumElements(shape), 1);
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (!walk.Append(shape[d], strides[d])) return std::nullopt;
  }
  return walk;
}

std::optional<Walk::Rows> Walk::RowsOf(std::int64_t first, std::int64_t count) const {
  if (count == 0) return Rows{};
  if (IsOneRun(first, count)) return Rows{At(first), 1, count, count};
  const std::int64_t cols = run_length();
  const bool whole = first % cols == 0 && count % cols == 0;
  if (!whole || first / block_length() != (first + count - 1) / block_length()) return std::nullopt;
  return Rows{At(first), count / cols, cols, run_stride()};
}

}  // namespace layercast
