// The load plan's builder: orders placements, and indexes them by tensor.
#include <algorithm>
#include <span>
#include <utility>

#include "engine_side/plan/plan_builder.h"

namespace layercast {

// Orders placements by layer, then by destination. Parameters are numbered by layer, so one counting sort by parameter
// does most of it. It sorts in place, because memory for a second copy would cost more than the sort.
void LoadPlan::Builder::OrderPlacements() {
  std::vector<Placement>& placements = plan_.placements_;
  for (const Placement& placement : placements) ++plan_.parameters_[placement.parameter].num_placements;
  std::vector<std::uint32_t> next;  // where each parameter's next placement goes
  next.reserve(plan_.parameters_.size());
  std::uint32_t first = 0;
  for (PlannedParameter& parameter : plan_.parameters_) {
    next.push_back(parameter.first_placement = first);
    first += parameter.num_placements;
  }
  std::vector<std::uint32_t> to;  // where each placement goes
  to.reserve(placements.size());
  for (const Placement& placement : placements) to.push_back(next[placement.parameter]++);
  for (std::uint32_t i = 0; i < to.size(); ++i) {
    while (to[i] != i) {
      std::swap(placements[i], placements[to[i]]);
      std::swap(to[i], to[to[i]]);
    }
  }
  const auto destination = [](const Placement& placement) { return placement.destination.begin; };
  for (const PlannedParameter& parameter : plan_.parameters_) {
    const auto into = std::span(placements).subspan(parameter.first_placement, parameter.num_placements);
    if (!std::ranges::is_sorted(into, {}, destination)) std::ranges::stable_sort(into, {}, destination);
  }
  for (PlannedLayer& layer : plan_.layers_) {
    layer.first_placement = plan_.parameters_[layer.first_parameter].first_placement;
    for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
      layer.num_placements += plan_.parameters_[layer.first_parameter + i].num_placements;
    }
    if (layer.num_placements == 0) continue;
    for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
      plan_.parameters_[layer.first_parameter + i].fallback.reset();
    }
  }
}

void LoadPlan::Builder::IndexTensors() {
  std::vector<std::uint32_t>& offsets = plan_.tensor_offsets_;
  offsets.assign(manifest_.size() + 1, 0);
  for (const Placement& placement : plan_.placements_) ++offsets[placement.tensor + 1];
  for (std::size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  std::vector<std::uint32_t> next = offsets;
  plan_.tensor_placements_.resize(plan_.placements_.size());
  for (std::uint32_t i = 0; i < plan_.placements_.size(); ++i) {
    plan_.tensor_placements_[next[plan_.placements_[i].tensor]++] = i;
  }
}

}  // namespace layercast
