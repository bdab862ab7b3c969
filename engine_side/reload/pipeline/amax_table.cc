#include "engine_side/reload/pipeline/amax_table.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine_side/model/naming/source_reading.h"
#include "engine_side/reload/layout/amax_requests.h"
#include "engine_side/reload/work/wrong_values.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/utf8.h"
#include "src/tensor/cast.h"
#include "src/tensor/walk.h"

namespace layercast {
namespace {

// The row of the parameter that row number `row` of the placement becomes. The placement has `rows` rows.
std::int64_t RowInParameter(const Placement& placement, std::int64_t row, std::int64_t rows) {
  const std::int64_t first = placement.destination.begin[placement.destination.rank - 2U];
  return first + (placement.order.interleaved ? row % 2 * (rows / 2) + row / 2 : row);
}

// Sets these axes of `box` to what they are in `from`.
void TakeAxes(Box& box, std::span<const std::uint8_t> axes, const Box& from) {
  for (const std::uint8_t axis : axes) {
    box.begin[axis] = from.begin[axis];
    box.extent[axis] = from.extent[axis];
  }
}

// The part of the tensor that determines the magnitude of matrix number `matrix` of the parameter.
Box BoxOf(const SourceMatrices& source, const Placement& placement, std::int64_t matrix) {
  Box box = source.part;
  if (!source.stack) return box;
  TakeAxes(box, *source.stack, placement.source);
  LAYERCAST_CHECK(NarrowDigits(box.begin, box.extent, *source.stack, matrix - placement.destination.begin[0], 1));
  return box;
}

}  // namespace

AmaxTable::AmaxTable(const LoadPlan& plan, const Manifest& manifest) : plan_(plan), manifest_(manifest) {
  for (const TensorSummary& summary : manifest.summaries()) tensors_.push_back(summary.amax);
  for (std::uint32_t i = 0; i < plan.parameters().size(); ++i) {
    const PlannedParameter& parameter = plan.parameters()[i];
    if (!parameter.quantize || parameter.spec.shape.size() != 3) continue;
    auto& of_matrix = stacks_[i];
    of_matrix.resize(static_cast<std::size_t>(parameter.spec.shape[0]));
    for (const Placement& placement : plan.PlacementsInto(parameter)) {
      const auto first = static_cast<std::size_t>(placement.destination.begin[0]);
      const auto count = static_cast<std::size_t>(placement.destination.extent[0]);
      for (std::size_t m = first; m < first + count; ++m) of_matrix[m].push_back(&placement);
    }
  }
}

// Boxes of one tensor may share the kept axes, as two halves of the columns share the rows. Their magnitudes are then
// combined by taking the larger.
void AmaxTable::AddAxes(std::uint32_t tensor, KeptAxes kept, const Box& box, std::span<const float> amax) {
  const Shape shape = KeptOf(plan_.SourceShape(manifest_, tensor), kept);
  Known& known = axes_[tensor];
  known.kept = kept;
  known.values.resize(static_cast<std::size_t>(NumElements(shape)), 0.0F);
  auto from = amax.begin();
  Walk::Into(shape, KeptOf(box, kept)).ForEachRun([&](std::int64_t offset, std::int64_t count) {
    for (std::int64_t i = offset; i < offset + count; ++i, ++from) {
      float& value = known.values[static_cast<std::size_t>(i)];
      value = std::max(value, *from);
    }
  });
}

std::vector<const Placement*> AmaxTable::PlacementsOf(std::uint32_t parameter, std::int64_t matrix) const {
  const auto stack = stacks_.find(parameter);
  if (stack != stacks_.end()) return stack->second.at(static_cast<std::size_t>(matrix));
  std::vector<const Placement*> all;
  for (const Placement& placement : plan_.PlacementsInto(plan_.parameters()[parameter])) all.push_back(&placement);
  return all;
}

bool AmaxTable::IsAnnounced(std::uint32_t parameter) const {
  const auto placements = plan_.PlacementsInto(plan_.parameters()[parameter]);
  return std::ranges::all_of(placements, [&](const Placement& placement) { return tensors_[placement.tensor] >= 0; });
}

bool AmaxTable::IsAwaited(std::uint32_t parameter) const {
  if (awaited_.empty()) return false;
  const auto placements = plan_.PlacementsInto(plan_.parameters()[parameter]);
  return std::ranges::any_of(placements, [&](const auto& placement) { return awaited_.contains(placement.tensor); });
}

float AmaxTable::OfMatrix(std::uint32_t parameter, std::int64_t matrix) const {
  float amax = 0;
  for (const Placement* placement : PlacementsOf(parameter, matrix)) {
    const float of_part = OfPlaced(*placement, matrix);
    if (of_part < 0) return -1;
    CheckHolds(*placement, of_part);
    amax = std::max(amax, of_part);
  }
  // Rounding keeps order, so the largest of the cast values is the cast of the largest.
  return RoundTo(plan_.parameters()[parameter].spec.dtype, amax);
}

// Throws kCorrupt, naming the tensor, for a magnitude that the parameter's dtype cannot hold. The value itself may lie
// in the part of another rank, which then says where.
void AmaxTable::CheckHolds(const Placement& placement, float amax) const {
  const PlannedParameter& parameter = plan_.parameters()[placement.parameter];
  if (std::isfinite(RoundTo(parameter.spec.dtype, amax))) return;
  const auto entry = manifest_.entry(placement.tensor);
  throw Error(ErrorCode::kCorrupt, "layer " + plan_.layers()[parameter.layer].path + ": " + Quote(entry.spec.name) +
                                       ": its largest magnitude is " +
                                       BeyondWords(amax, Name(entry.spec.dtype), parameter.spec.dtype));
}

// The largest magnitude, over all ranks, of the part of the matrix that the placement belongs to. Negative if it is not
// known.
float AmaxTable::OfPlaced(const Placement& placement, std::int64_t matrix) const {
  const SourceMatrices source = SourceMatrices::Of(plan_, manifest_, placement);
  if (source.Needed(AmaxNeed::kTensor) == 0) return tensors_[placement.tensor];
  const auto found = axes_.find(placement.tensor);
  if (found == axes_.end()) return -1;
  const Known& known = found->second;
  const Walk walk = Walk::Into(KeptOf(source.shape, known.kept), KeptOf(BoxOf(source, placement, matrix), known.kept));
  float amax = 0;
  walk.ForEachRun([&](std::int64_t offset, std::int64_t count) {
    const auto first = known.values.begin() + offset;
    amax = std::max(amax, *std::max_element(first, first + count));
  });
  return amax;
}

std::vector<float> AmaxTable::RowsOfMatrix(std::uint32_t parameter, std::int64_t matrix) const {
  const TensorSpec& spec = plan_.parameters()[parameter].spec;
  std::vector<float> rows(static_cast<std::size_t>(spec.shape[spec.shape.size() - 2]), 0.0F);
  for (const Placement* placement : PlacementsOf(parameter, matrix)) {
    if (!AddRows(*placement, matrix, rows)) return {};
  }
  for (float& amax : rows) amax = RoundTo(spec.dtype, amax);
  return rows;
}

// Returns false if the magnitudes are not known.
bool AmaxTable::AddRows(const Placement& placement, std::int64_t matrix, std::span<float> rows) const {
  const auto found = axes_.find(placement.tensor);
  if (found == axes_.end()) return false;
  const Known& known = found->second;
  const SourceMatrices source = SourceMatrices::Of(plan_, manifest_, placement);
  Box box = BoxOf(source, placement, matrix);
  TakeAxes(box, source.rows, placement.source);
  std::array<std::int64_t, Box::kMaxRank> steps{};  // by axis of the tensor: how many rows a step along it is
  std::int64_t count = 1;
  for (auto axis = source.rows.rbegin(); axis != source.rows.rend(); count *= box.extent[*axis++]) steps[*axis] = count;
  std::vector<std::int64_t> kept_steps;
  for (std::size_t axis = 0; axis < source.shape.size(); ++axis) {
    if ((known.kept >> axis & 1) != 0) kept_steps.push_back(steps[axis]);
  }
  const Box kept = KeptOf(box, known.kept);
  const Walk row_of = Walk::Over(Shape(kept.extent.begin(), kept.extent.begin() + kept.rank), kept_steps).value();
  float largest = 0;
  std::int64_t number = 0;
  Walk::Into(KeptOf(source.shape, known.kept), kept).ForEachRun([&](std::int64_t offset, std::int64_t of_run) {
    for (std::int64_t i = offset; i < offset + of_run; ++i) {
      const float value = known.values[static_cast<std::size_t>(i)];
      float& amax = rows[static_cast<std::size_t>(RowInParameter(placement, row_of.At(number++), count))];
      amax = std::max(amax, value);
      largest = std::max(largest, value);
    }
  });
  CheckHolds(placement, largest);
  return true;
}

}  // namespace layercast
