// The largest magnitudes of a tensor over some of its dimensions: what a receiver asks for beside its schedule where a
// scale needs more than its own part of a weight. Computed by whoever has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layercast/tensor.h"
#include "src/base/worker_pool.h"

namespace layercast {

// Which dimensions a result keeps, bit d for dimension d; the magnitudes are over all the others. Rows of a matrix:
// 0b01. Of a stack of matrices: 0b001 keeps one value for each, 0b011 one for each of their rows, 0b101 one for each
// column.
using KeptAxes = std::uint8_t;
inline constexpr KeptAxes kKeptRows = 0b01;

struct AmaxRequest {
  std::uint32_t tensor = 0;  // its number in the manifest
  KeptAxes kept = kKeptRows;
  std::uint32_t before_chunk = 0;  // of a snapshot's schedule: by then the answer is needed
  Shape read_as{};                 // what `kept` is of, where a receiver reads the tensor in another shape; else empty
  bool operator==(const AmaxRequest&) const = default;
};

// The tensor as the request reads it. Throws kInvalidArgument, naming tensor and shapes, for one of other elements.
TensorSpec AsRead(const TensorSpec& spec, const AmaxRequest& request);
// Throws kInvalidArgument unless `kept` is the first dimensions of such a tensor, or these and its last, and not all.
void CheckKept(const Shape& shape, KeptAxes kept);
// How many values that gives.
std::int64_t NumKept(const Shape& shape, KeptAxes kept);
// A tensor as [outer, reduced, last], of which the middle one is not kept; last is 1 where the last dimension is not.
struct AxisSplit {
  std::int64_t outer = 1, reduced = 1, last = 1;
  static AxisSplit Of(const Shape& shape, KeptAxes kept);
};
// The values, row-major; of finite elements alone.
std::vector<float> AmaxOver(const TensorSpec& spec, const std::byte* data, KeptAxes kept, WorkerPool& pool);

}  // namespace layercast
