#include "engine_side/reload/box_runs.h"

#include "src/base/check.h"

namespace layercast {

BoxRuns::BoxRuns(const Box& box, DType dtype, const Shape& shape) : box_(box) {
  LAYERCAST_CHECK(box.rank == shape.size() && BitsPerElement(dtype) % 8 == 0);
  auto stride = static_cast<std::uint64_t>(BitsPerElement(dtype)) / 8;
  for (std::size_t d = box.rank; d-- > 0;) {
    LAYERCAST_CHECK(box.begin[d] >= 0 && box.extent[d] >= 0 && box.begin[d] + box.extent[d] <= shape[d]);
    stride_[d] = stride;
    first_ += static_cast<std::uint64_t>(box.begin[d]) * stride;
    stride *= static_cast<std::uint64_t>(shape[d]);
  }
  // A run spans the trailing dimensions that the box has whole, and the part of one more.
  outer_ = box.rank;
  run_bytes_ = static_cast<std::uint64_t>(BitsPerElement(dtype)) / 8;
  while (outer_ > 0) {
    --outer_;
    run_bytes_ *= static_cast<std::uint64_t>(box.extent[outer_]);
    if (box.extent[outer_] != shape[outer_]) break;
  }
  count_ = run_bytes_ == 0 ? 0 : 1;
  for (std::size_t d = 0; d < outer_; ++d) count_ *= static_cast<std::uint64_t>(box.extent[d]);
}

std::uint64_t BoxRuns::offset(std::uint64_t run) const {
  std::uint64_t offset = first_;
  for (std::size_t d = outer_; d-- > 0;) {
    const auto extent = static_cast<std::uint64_t>(box_.extent[d]);
    offset += (run % extent) * stride_[d];
    run /= extent;
  }
  return offset;
}

}  // namespace layercast
