// The largest magnitudes of a tensor over some of its dimensions. A receiver asks for them beside its schedule, if a
// scale depends on more of a weight than this rank receives. They are computed where the bytes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layercast/tensor.h"
#include "src/base/threads/worker_pool.h"

namespace layercast {

// Which dimensions a result keeps, bit d for dimension d; the magnitudes are over all the others. For a matrix, 0b01
// gives a value for each row. For a stack of matrices, 0b001 gives a value for each matrix, 0b011 one for each of their
// rows, and 0b101 one for each of their columns.
using KeptAxes = std::uint8_t;
inline constexpr KeptAxes kKeptRows = 0b01;

// Value.
struct AmaxRequest {
  std::uint32_t tensor = 0;  // its number in the manifest
  KeptAxes kept = kKeptRows;
  std::uint32_t before_chunk = 0;  // for a snapshot: the answer is needed before this chunk of the schedule
  Shape read_as{};                 // the shape that `kept` refers to, if not the tensor's own; empty: the tensor's own
  bool operator==(const AmaxRequest&) const = default;
};

// The tensor in the shape that the request reads it in. Throws kInvalidArgument, naming tensor and shapes, if that has
// another number of elements.
TensorSpec AsRead(const TensorSpec& spec, const AmaxRequest& request);
// Throws kInvalidArgument unless `kept` is some of the shape's first dimensions, or these and its last, but not all.
void CheckKept(const Shape& shape, KeptAxes kept);
// How many values a request gives that keeps these dimensions.
std::int64_t NumKept(const Shape& shape, KeptAxes kept);
// A tensor's shape as [outer, reduced, last], of which only `reduced` is not kept. `last` is 1 if the last dimension is
// not kept.
struct AxisSplit {
  std::int64_t outer = 1, reduced = 1, last = 1;
  static AxisSplit Of(const Shape& shape, KeptAxes kept);
};
// The largest magnitudes of a host tensor's finite elements, row-major over the kept dimensions.
std::vector<float> AmaxOver(const TensorSpec& spec, const std::byte* data, KeptAxes kept, WorkerPool& pool);

}  // namespace layercast
