#include "engine_side/reload/device/walks.h"

#include <algorithm>
#include <span>
#include <vector>

#include "src/base/check.h"

namespace layercast {
namespace {

struct Dimension {
  std::int64_t extent, stride;
};

// Leaves out dimensions of one element, and joins dimensions that continue each other.
std::optional<ElementWalk> Collapsed(std::span<const Dimension> dimensions, std::int64_t offset) {
  std::vector<Dimension> kept;
  for (const Dimension& next : dimensions) {
    if (next.extent == 1) continue;
    if (!kept.empty() && kept.back().stride == next.extent * next.stride) {
      kept.back() = {kept.back().extent * next.extent, next.stride};
    } else {
      kept.push_back(next);
    }
  }
  if (kept.size() > ElementWalk::kMaxRank) return std::nullopt;
  ElementWalk walk;
  walk.offset = offset;
  for (const Dimension& dimension : kept) {
    walk.extent[walk.rank] = dimension.extent;
    walk.stride[walk.rank++] = dimension.stride;
  }
  return walk;
}

}  // namespace

// An interleaved axis becomes two dimensions: the source's element i goes to i % 2 * (extent / 2) + i / 2.
ElementWalk WalkInto(const Shape& shape, const Box& box, ElementOrder order) {
  LAYERCAST_CHECK(box.rank == shape.size());
  std::vector<std::vector<Dimension>> axes(box.rank);
  std::int64_t offset = 0;
  std::int64_t stride = 1;
  for (std::size_t d = box.rank; d-- > 0;) {
    const std::int64_t extent = box.extent[d];
    const bool interleaved = order.interleaved && d == 1;
    LAYERCAST_CHECK(!interleaved || extent % 2 == 0);
    if (interleaved) {
      axes[d] = {{extent / 2, stride}, {2, extent / 2 * stride}};
    } else {
      axes[d] = {{extent, stride}};
    }
    offset += box.begin[d] * stride;
    stride *= shape[d];
  }
  if (order.transposed) std::swap(axes.at(axes.size() - 2), axes.back());
  std::vector<Dimension> dimensions;
  for (const auto& axis : axes) dimensions.insert(dimensions.end(), axis.begin(), axis.end());
  const std::optional<ElementWalk> walk = Collapsed(dimensions, offset);
  LAYERCAST_CHECK(walk.has_value());  // a box has at most kMaxRank, and a reordered one fewer
  return *walk;
}

std::optional<ElementWalk> WalkOver(const CapturedBuffer& buffer) {
  std::vector<Dimension> dimensions;
  std::int64_t packed = 1;
  for (std::size_t d = buffer.shape.size(); d-- > 0;) {
    dimensions.push_back({buffer.shape[d], buffer.strides.empty() ? packed : buffer.strides[d]});
    packed *= buffer.shape[d];
  }
  std::ranges::reverse(dimensions);
  return Collapsed(dimensions, 0);
}

bool IsPacked(const CapturedBuffer& buffer) {
  if (buffer.strides.empty()) return true;
  const std::optional<ElementWalk> walk = WalkOver(buffer);
  return walk && (NumElements(*walk) == 0 || IsOneRun(*walk, 0, NumElements(*walk)));
}

std::int64_t NumElements(const ElementWalk& walk) {
  std::int64_t elements = 1;
  for (int d = 0; d < walk.rank; ++d) elements *= walk.extent[d];
  return elements;
}

bool IsOneRun(const ElementWalk& walk, std::int64_t first, std::int64_t count) {
  if (count <= 1 || walk.rank == 0) return true;
  const int last = walk.rank - 1;
  return walk.stride[last] == 1 && first % walk.extent[last] + count <= walk.extent[last];
}

std::optional<WalkRows> RowsOf(const ElementWalk& walk, std::int64_t first, std::int64_t count) {
  if (count == 0) return WalkRows{};
  if (IsOneRun(walk, first, count)) return WalkRows{walk.At(first), 1, count, count};
  if (walk.rank != 2 || walk.stride[1] != 1) return std::nullopt;
  const std::int64_t cols = walk.extent[1];
  if (first % cols != 0 || count % cols != 0) return std::nullopt;
  return WalkRows{walk.At(first), count / cols, cols, walk.stride[0]};
}

}  // namespace layercast
