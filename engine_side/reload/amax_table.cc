#include "engine_side/reload/amax_table.h"

#include <algorithm>

#include "src/base/check.h"
#include "src/tensor/cast.h"

namespace layercast {

AmaxTable::AmaxTable(const LoadPlan& plan, const Manifest& manifest) : plan_(plan) {
  for (const ManifestEntry& entry : manifest.entries()) tensors_.push_back(entry.amax);
}

float AmaxTable::OfParameter(std::uint32_t parameter) const {
  float amax = 0;
  for (const Placement& placement : plan_.PlacementsInto(plan_.parameters()[parameter])) {
    const float of_tensor = tensors_[placement.tensor];
    if (of_tensor < 0) return -1;
    amax = std::max(amax, of_tensor);
  }
  // Rounding keeps order, so the largest of the cast values is the cast of the largest.
  return RoundTo(plan_.parameters()[parameter].spec.dtype, amax);
}

std::vector<float> AmaxTable::RowsOfParameter(std::uint32_t parameter) const {
  const TensorSpec& spec = plan_.parameters()[parameter].spec;
  std::vector<float> rows(static_cast<std::size_t>(spec.shape.at(0)), 0.0F);
  for (const Placement& placement : plan_.PlacementsInto(plan_.parameters()[parameter])) {
    const auto known = rows_.find(placement.tensor);
    if (known == rows_.end()) return {};
    for (std::int64_t row = 0; row < placement.destination.extent[0]; ++row) {
      const auto from = static_cast<std::size_t>(placement.source.begin[0] + row);
      LAYERCAST_CHECK(from < known->second.size());
      rows[static_cast<std::size_t>(placement.destination.begin[0] + row)] = RoundTo(spec.dtype, known->second[from]);
    }
  }
  return rows;
}

std::vector<std::uint32_t> RowAmaxTensors(const LoadPlan& plan, const Recipe& recipe) {
  std::vector<std::uint32_t> tensors;
  for (const Placement& placement : plan.placements()) {
    const PlannedParameter& parameter = plan.parameters()[placement.parameter];
    if (parameter.quantize && recipe.Needs(parameter.shard_axis) == AmaxNeed::kRows)
      tensors.push_back(placement.tensor);
  }
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  return tensors;
}

}  // namespace layercast
