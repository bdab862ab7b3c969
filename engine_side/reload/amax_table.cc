#include "engine_side/reload/amax_table.h"

#include <algorithm>

#include "engine_side/model/box_runs.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/tensor/cast.h"

namespace layercast {
namespace {

// A checkpoint tensor that holds a stack of matrices, as the parameter does.
bool IsStacked(const Placement& placement) { return placement.source.rank == 3 && placement.destination.rank == 3; }

// Of a tensor that is read in parts or another shape, its own magnitude is known, and those of its rows are not.
void CheckIsEnough(const LoadPlan& plan, const Placement& placement, AmaxNeed need) {
  const ReadTensor* read = plan.FindRead(placement.tensor);
  const Box& source = placement.source;
  const bool is_matrix = placement.destination.rank == 2;
  const bool has_all_columns = source.extent[source.rank - 1U] == read->shape.back();
  if (need == AmaxNeed::kNone) return;
  if (is_matrix && (need == AmaxNeed::kTensor ? read->fills_one_parameter : has_all_columns)) return;
  const PlannedParameter& parameter = plan.parameters()[placement.parameter];
  throw Error(
      ErrorCode::kUnsupported,
      parameter.spec.name +
          ": the recipe's scales follow from magnitudes over all ranks, which are not known of "
          "a tensor that is split, deinterleaved or reshaped; expected one that is read as it is, or transposed");
}

// The axes of the tensor that are matrices and rows of the parameter.
KeptAxes RowsOf(const Placement& placement) {
  if (placement.order.transposed) return IsStacked(placement) ? 0b101 : 0b010;
  return IsStacked(placement) ? 0b011 : 0b001;
}

// Which of the placement's rows in the tensor becomes its row number `row` in the parameter, of `rows`.
std::int64_t SourceRow(const Placement& placement, std::int64_t row, std::int64_t rows) {
  if (!placement.order.interleaved) return row;
  return row < rows / 2 ? 2 * row : 2 * (row - rows / 2) + 1;
}

// Which matrix of such a tensor becomes matrix number `matrix` of the parameter.
std::int64_t SourceMatrix(const Placement& placement, std::int64_t matrix) {
  return placement.source.begin[0] + matrix - placement.destination.begin[0];
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

Shape KeptOf(const Shape& shape, KeptAxes kept) {
  Shape of;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if ((kept >> d & 1) != 0) of.push_back(shape[d]);
  }
  return of;
}

Box KeptOf(const Box& box, KeptAxes kept) {
  Box of;
  for (std::size_t d = 0; d < box.rank; ++d) {
    if ((kept >> d & 1) == 0) continue;
    of.begin[of.rank] = box.begin[d];
    of.extent[of.rank++] = box.extent[d];
  }
  return of;
}

// Parts may share the axes that are kept, as columns share rows: what they say of them is put together.
void AmaxTable::AddAxes(std::uint32_t tensor, const Shape& shape, const Box& box, std::span<const float> amax) {
  std::vector<float>& all = axes_[tensor];
  all.resize(static_cast<std::size_t>(NumElements(shape)), 0.0F);
  auto from = amax.begin();
  for (BoxRuns runs(shape, box); const std::optional<Run> run = runs.Next();) {
    for (std::int64_t i = run->offset; i < run->offset + run->count; ++i, ++from) {
      float& value = all[static_cast<std::size_t>(i)];
      value = std::max(value, *from);
    }
  }
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
  for (const Placement* into : PlacementsOf(parameter, matrix)) {
    const Placement& placement = *into;
    float of_part = tensors_[placement.tensor];
    if (IsStacked(placement)) {
      const auto known = axes_.find(placement.tensor);
      if (known == axes_.end()) return -1;
      of_part = known->second.at(static_cast<std::size_t>(SourceMatrix(placement, matrix)));
    }
    if (of_part < 0) return -1;
    amax = std::max(amax, of_part);
  }
  // Rounding keeps order, so the largest of the cast values is the cast of the largest.
  return RoundTo(plan_.parameters()[parameter].spec.dtype, amax);
}

std::vector<float> AmaxTable::RowsOfMatrix(std::uint32_t parameter, std::int64_t matrix) const {
  const TensorSpec& spec = plan_.parameters()[parameter].spec;
  const std::size_t axis = spec.shape.size() - 2;  // of rows
  std::vector<float> rows(static_cast<std::size_t>(spec.shape[axis]), 0.0F);
  for (const Placement* into : PlacementsOf(parameter, matrix)) {
    const Placement& placement = *into;
    const auto known = axes_.find(placement.tensor);
    if (known == axes_.end()) return {};
    const Shape& source = manifest_.entry(placement.tensor).spec.shape;
    const std::size_t source_axis = source.size() - (placement.order.transposed ? 1 : 2);
    std::int64_t from = placement.source.begin[source_axis];
    if (IsStacked(placement)) from += SourceMatrix(placement, matrix) * source[source_axis];
    const std::int64_t count = placement.destination.extent[axis];
    LAYERCAST_CHECK(from + count <= static_cast<std::int64_t>(known->second.size()));
    for (std::int64_t row = 0; row < count; ++row) {
      rows[static_cast<std::size_t>(placement.destination.begin[axis] + row)] =
          RoundTo(spec.dtype, known->second[static_cast<std::size_t>(from + SourceRow(placement, row, count))]);
    }
  }
  return rows;
}

std::vector<AmaxRequest> AmaxRequests(const LoadPlan& plan, const Recipe& recipe) {
  std::map<std::uint32_t, KeptAxes> requests;
  for (const Placement& placement : plan.placements()) {
    const PlannedParameter& parameter = plan.parameters()[placement.parameter];
    if (!parameter.quantize) continue;
    const AmaxNeed need = recipe.Needs(parameter.shard_axis);
    if (plan.FindRead(placement.tensor) != nullptr) {
      CheckIsEnough(plan, placement, need);
      continue;
    }
    if (need == AmaxNeed::kRows) requests[placement.tensor] = RowsOf(placement);
    if (need == AmaxNeed::kTensor && IsStacked(placement)) requests[placement.tensor] = 0b001;
  }
  std::vector<AmaxRequest> sorted;
  for (const auto& [tensor, kept] : requests) sorted.push_back({tensor, kept});
  return sorted;
}

}  // namespace layercast
