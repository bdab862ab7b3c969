// A piece of a placement: the unit in which bytes arrive and are marked as covered. Values.
//
// A placement's source elements in row-major order are its *packed bytes*. A piece is a range of them. It consists of
// whole rows of the source box where rows are small enough, so that kernels can work on it, and otherwise of a part of
// one row.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "src/tensor/region.h"
#include "src/wire/schedule.h"

namespace layercast {

struct Piece {
  std::uint32_t placement = 0;
  std::uint64_t begin = 0;  // [begin, end) in packed bytes
  std::uint64_t end = 0;
};

// The region that a piece covers in the source tensor, or in the part of it that a publisher holds. Tensors are
// numbered as in a fetch session. A piece is always a single region: either a contiguous run, or whole rows at a
// stride.
Region RegionOf(const LoadPlan& plan, const Manifest& manifest, const Piece& piece);

// A schedule and, for each of its regions in order, the piece that it carries.
struct PlannedSchedule {
  Schedule schedule;
  std::vector<Piece> pieces;
};

struct ScheduleOptions {
  std::uint64_t chunk_bytes = 4U << 20;
  std::uint64_t row_multiple = 1;     // cut placements at multiples of this many rows (128 for block recipes)
  bool one_tensor_per_chunk = false;  // for streams: a chunk carries regions of only one tensor
};

// Schedules every placement once, in layer order. Small placements are gathered and large ones cut into chunks of at
// most chunk_bytes; even a row is cut if it is longer than that. Throws kInvalidArgument if chunk_bytes is below 16.
PlannedSchedule MakeSchedule(const LoadPlan& plan, const Manifest& manifest, const ScheduleOptions& options);

}  // namespace layercast
