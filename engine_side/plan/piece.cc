#include "engine_side/plan/piece.h"

#include <algorithm>
#include <optional>
#include <string>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/tensor/walk.h"

namespace layercast {
namespace {

constexpr std::uint64_t kSmallestChunk = 16;        // large enough for an element of any type
constexpr std::size_t kMostRegionsPerChunk = 1024;  // small regions are gathered up to this number

// The source box of a placement, measured in bytes. Its logical rows extend along the last dimension.
struct SourceBytes {
  std::uint32_t tensor = 0;   // its number in a fetch session
  Walk walk;                  // over its elements, or over the bytes of packed types, which are placed whole
  std::uint64_t element = 0;  // bytes of one
  std::uint64_t total = 0;    // packed bytes
  std::uint64_t row = 0;      // bytes of a logical row
  std::uint64_t run = 0;      // bytes of a run: whole logical rows
  std::uint64_t block = 0;    // bytes of all runs of a block

  SourceBytes(const LoadPlan& plan, const Manifest& manifest, const Placement& placement)
      : tensor(NumberOf(plan, placement)) {
    const Box& box = placement.source;
    const auto bits = static_cast<std::uint64_t>(BitsPerElement(manifest.entry(placement.tensor).spec.dtype));
    element = std::max<std::uint64_t>(bits / 8, 1);
    total = static_cast<std::uint64_t>(box.num_elements()) * bits / 8;
    if (bits % 8 == 0) {
      walk = WalkOf(plan, manifest, placement);
      row = static_cast<std::uint64_t>(box.rank == 0 ? 1 : box.extent[box.rank - 1U]) * element;
    } else {  // a row need not fill whole bytes, so the tensor counts as one row
      walk = Walk::Over({static_cast<std::int64_t>(total)}, {}).value();
      row = total;
    }
    run = static_cast<std::uint64_t>(walk.run_length()) * element;
    block = static_cast<std::uint64_t>(walk.block_length()) * element;
  }

  static std::uint32_t NumberOf(const LoadPlan& plan, const Placement& placement) {
    return plan.parts().empty() ? placement.tensor : plan.parts()[placement.tensor][placement.part].number;
  }

  // Within what the publisher holds: within a part, if the tensor is held in parts.
  static Walk WalkOf(const LoadPlan& plan, const Manifest& manifest, const Placement& placement) {
    const std::span<const HeldPart> cuts = plan.CutsOf(placement.tensor);
    if (cuts.empty()) return Walk::Into(plan.SourceShape(manifest, placement.tensor), placement.source);
    const Box& part = cuts[placement.part].box;
    Box inside = placement.source;
    for (std::size_t axis = 0; axis < inside.rank; ++axis) inside.begin[axis] -= part.begin[axis];
    return Walk::Into(Shape(part.extent.begin(), part.extent.begin() + part.rank), inside);
  }
};

// Decides where the piece that begins at a given packed byte ends.
class Cutter {
 public:
  Cutter(const SourceBytes& source, const Box& destination, std::uint64_t chunk_bytes, std::uint64_t row_multiple)
      : source_(source), chunk_bytes_(chunk_bytes), multiple_(destination.rank < 2 ? 1 : row_multiple) {
    if (destination.rank < 2) return;
    first_row_ = static_cast<std::uint64_t>(destination.begin[destination.rank - 2U]);
    rows_ = static_cast<std::uint64_t>(destination.extent[destination.rank - 2U]);
  }

  std::uint64_t End(std::uint64_t begin) const {
    const std::uint64_t fit = chunk_bytes_ / source_.row;
    if (fit == 0) {  // one row is longer than a chunk
      const std::uint64_t step = chunk_bytes_ / source_.element * source_.element;
      return std::min(begin + step, begin - begin % source_.row + source_.row);
    }
    const std::uint64_t bound =
        source_.run > source_.row ? RunEnd(begin) : begin - begin % source_.block + source_.block;
    const std::uint64_t index = begin / source_.row;
    std::uint64_t rows = std::min(fit, (bound - begin) / source_.row);
    // Each matrix of a stack counts its rows from 0. If the multiple does not divide a matrix's rows, a piece ends
    // where the matrix does.
    if (rows_ % multiple_ != 0) rows = std::min(rows, rows_ - index % rows_);
    return begin + source_.row * AtMultiple(index, rows, (index + rows) % rows_ == 0);
  }

 private:
  std::uint64_t RunEnd(std::uint64_t begin) const { return begin - begin % source_.run + source_.run; }

  // How many rows to take from row `index` on: at most `rows`, ending at a multiple (counted in the parameter's rows)
  // if one is within reach.
  std::uint64_t AtMultiple(std::uint64_t index, std::uint64_t rows, bool to_the_end) const {
    if (multiple_ <= 1) return rows;
    const std::uint64_t row = first_row_ + index % rows_;
    const std::uint64_t past = row % multiple_;
    if (past != 0) return std::min(rows, multiple_ - past);
    if (to_the_end || rows < multiple_) return rows;
    return rows - rows % multiple_;
  }

  const SourceBytes& source_;
  std::uint64_t chunk_bytes_;
  std::uint64_t multiple_;
  std::uint64_t first_row_ = 0;
  std::uint64_t rows_ = 1;
};

// A piece is a part of a run, or whole runs of one block.
Region RegionIn(const SourceBytes& source, std::uint64_t begin, std::uint64_t end) {
  const auto element = static_cast<std::int64_t>(source.element);
  const auto bytes = [&](std::int64_t elements) { return static_cast<std::uint64_t>(elements * element); };
  const std::optional<Walk::Rows> rows =
      source.walk.RowsOf(static_cast<std::int64_t>(begin) / element, static_cast<std::int64_t>(end - begin) / element);
  LAYERCAST_CHECK(rows.has_value());
  const std::uint64_t stride = rows->rows == 1 ? 0 : bytes(rows->stride);
  return {source.tensor, bytes(rows->at), bytes(rows->cols), static_cast<std::uint64_t>(rows->rows), stride};
}

// Gathers pieces into chunks.
class Gatherer {
 public:
  Gatherer(const ScheduleOptions& options, PlannedSchedule& out) : options_(options), out_(out) {}

  void Add(const Piece& piece, const Region& region) {
    const bool full = bytes_ + region.num_bytes() > options_.chunk_bytes || regions_.size() == kMostRegionsPerChunk;
    const bool other = options_.one_tensor_per_chunk && !regions_.empty() && regions_.back().tensor != region.tensor;
    if (full || other) Close();
    regions_.push_back(region);
    out_.pieces.push_back(piece);
    bytes_ += region.num_bytes();
  }

  void Close() {
    if (!regions_.empty()) out_.schedule.Add(regions_);
    regions_.clear();
    bytes_ = 0;
  }

 private:
  const ScheduleOptions& options_;
  PlannedSchedule& out_;
  std::vector<Region> regions_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Region RegionOf(const LoadPlan& plan, const Manifest& manifest, const Piece& piece) {
  const Placement& placement = plan.placements().at(piece.placement);
  const SourceBytes source(plan, manifest, placement);
  LAYERCAST_CHECK(piece.begin < piece.end && piece.end <= source.total);
  return RegionIn(source, piece.begin, piece.end);
}

PlannedSchedule MakeSchedule(const LoadPlan& plan, const Manifest& manifest, const ScheduleOptions& options) {
  if (options.chunk_bytes < kSmallestChunk) {
    throw Error(ErrorCode::kInvalidArgument, "chunk_bytes: expected at least " + std::to_string(kSmallestChunk) +
                                                 ", got " + std::to_string(options.chunk_bytes));
  }
  PlannedSchedule out;
  Gatherer gatherer(options, out);
  for (std::uint32_t i = 0; i < plan.placements().size(); ++i) {
    const Placement& placement = plan.placements()[i];
    const SourceBytes source(plan, manifest, placement);
    const bool rows_matter = plan.parameters()[placement.parameter].quantize && placement.order.is_same();
    const Cutter cutter(source, placement.destination, options.chunk_bytes, rows_matter ? options.row_multiple : 1);
    for (std::uint64_t begin = 0; begin < source.total;) {
      const Piece piece{i, begin, cutter.End(begin)};
      gatherer.Add(piece, RegionIn(source, piece.begin, piece.end));
      begin = piece.end;
    }
  }
  gatherer.Close();
  return out;
}

}  // namespace layercast
