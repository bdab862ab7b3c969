#include "engine_side/plan/cut_piece.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::size_t kInterleavedAxis = 1;  // the axis of a destination that ElementOrder interleaves

// A box's axes of more than one element, slowest first, in the order in which the source's elements run through them.
std::vector<std::size_t> LongAxes(const Box& box, bool transposed) {
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < box.rank; ++axis) axes.push_back(axis);
  if (transposed) std::swap(axes[axes.size() - 2], axes[axes.size() - 1]);
  std::erase_if(axes, [&](std::size_t axis) { return box.extent[axis] == 1; });
  return axes;
}

Box Intersection(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t axis = 0; axis < a.rank; ++axis) {
    both.begin[axis] = std::max(a.begin[axis], b.begin[axis]);
    const std::int64_t end = std::min(a.begin[axis] + a.extent[axis], b.begin[axis] + b.extent[axis]);
    both.extent[axis] = std::max<std::int64_t>(end - both.begin[axis], 0);
  }
  return both;
}

}  // namespace

std::optional<PlacedPiece> CutPiece(const PlacedPiece& piece, const Box& part) {
  const Box source = Intersection(piece.source, part);
  if (source == piece.source) return piece;
  if (source.num_elements() == 0) return std::nullopt;
  const std::vector<std::size_t> from = LongAxes(piece.source, false);
  const std::vector<std::size_t> to = LongAxes(piece.destination, piece.order.transposed);
  const auto same_extent = [&](std::size_t a, std::size_t b) {
    return piece.source.extent[a] == piece.destination.extent[b];
  };
  if (!std::ranges::equal(from, to, same_extent)) {
    throw Error(ErrorCode::kUnsupported, "it changes its shape on its way, and cannot come in parts");
  }
  PlacedPiece cut = piece;
  cut.source = source;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::int64_t extent = source.extent[from[i]];
    if (extent == piece.source.extent[from[i]]) continue;
    if (piece.order.interleaved && to[i] == kInterleavedAxis) {
      throw Error(ErrorCode::kUnsupported, "its parts are cut along axis " + std::to_string(from[i]) +
                                               ", whose elements take turns: expected it whole there");
    }
    cut.destination.begin[to[i]] += source.begin[from[i]] - piece.source.begin[from[i]];
    cut.destination.extent[to[i]] = extent;
  }
  return cut;
}

}  // namespace layercast
