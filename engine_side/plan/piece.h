// A piece of a placement: the unit in which bytes arrive, and are counted as covered. Values.
//
// A placement's source elements, row-major, are its *packed bytes*. A piece is a range of them: whole rows of the
// source box wherever rows are small enough, so that kernels can work on it, else a part of one row.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "src/tensor/region.h"
#include "src/wire/schedule.h"

namespace layercast {

struct Piece {
  std::uint32_t placement = 0;
  std::uint64_t begin = 0;  // packed bytes, half-open
  std::uint64_t end = 0;
};

// The region of the source tensor that a piece covers, or of the part of it that a publisher has: tensors are numbered
// as in a fetch session. A piece is always one region: a contiguous run, or
// whole strided rows.
Region RegionOf(const LoadPlan& plan, const Manifest& manifest, const Piece& piece);

// A schedule and, for each of its regions in order, the piece that it carries.
struct PlannedSchedule {
  Schedule schedule;
  std::vector<Piece> pieces;
};

struct ScheduleOptions {
  std::uint64_t chunk_bytes = 4U << 20;
  std::uint64_t row_multiple = 1;     // cut a placement's rows at multiples of this many (128: block recipes)
  bool one_tensor_per_chunk = false;  // streams: a tensor's chunks carry nothing else
};

// Every placement once, in layer order; small ones gathered, large ones cut into chunks of at most chunk_bytes
// (a row longer than that is cut too).
PlannedSchedule MakeSchedule(const LoadPlan& plan, const Manifest& manifest, const ScheduleOptions& options);

}  // namespace layercast
