#include "src/tensor/parts/coverage.h"

#include <algorithm>
#include <numeric>

namespace layercast {
namespace {

constexpr std::size_t kMostOverlaps = 64;

// The first axis along which the boxes begin at different places.
std::size_t SweepAxis(std::span<const Box> boxes) {
  for (std::size_t axis = 0; axis + 1 < boxes.front().rank; ++axis) {
    const auto elsewhere = [&](const Box& box) { return box.begin[axis] != boxes.front().begin[axis]; };
    if (std::ranges::any_of(boxes, elsewhere)) return axis;
  }
  return boxes.front().rank == 0 ? 0 : boxes.front().rank - 1U;
}

}  // namespace

bool Overlap(const Box& a, const Box& b) {
  for (std::size_t axis = 0; axis < a.rank; ++axis) {
    if (a.begin[axis] >= b.begin[axis] + b.extent[axis] || b.begin[axis] >= a.begin[axis] + a.extent[axis])
      return false;
  }
  return true;
}

Coverage Cover(std::span<const Box> boxes) {
  Coverage coverage;
  if (boxes.empty()) return coverage;
  for (const Box& box : boxes) coverage.elements += box.num_elements();
  if (boxes.size() == 1) return coverage;

  const std::size_t axis = SweepAxis(boxes);
  const auto begin = [&](std::size_t index) { return boxes[index].begin[axis]; };
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, begin);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Box& box = boxes[order[i]];
    if (box.num_elements() == 0) continue;
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      const Box& other = boxes[order[j]];
      if (box.rank != 0 && other.begin[axis] >= box.begin[axis] + box.extent[axis]) break;
      if (other.num_elements() == 0 || !Overlap(box, other)) continue;
      coverage.overlaps.emplace_back(std::minmax(order[i], order[j]));
      if (coverage.overlaps.size() == kMostOverlaps) return coverage;
    }
  }
  return coverage;
}

}  // namespace layercast
