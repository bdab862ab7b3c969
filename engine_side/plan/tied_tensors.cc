// The load plan's builder: tied tensors, and parameters that take another parameter's tensors because none of their own
// come.
#include <algorithm>
#include <map>
#include <string>

#include "engine_side/plan/plan_builder.h"
#include "src/base/log.h"
#include "src/base/utf8.h"

namespace layercast {

bool LoadPlan::Builder::IsTouched(const Resolution& to) {
  return std::ranges::any_of(to.pieces, [&](const PlacedPiece& piece) {
    return touched_[plan_.layers_[LayerOf(to.owner)].first_parameter + piece.parameter];
  });
}

// Places a tied tensor in its owner's place if the owner is absent, is dropped by a rule, or does not fit. Otherwise
// the tensor becomes an alias of the owner.
void LoadPlan::Builder::PlaceTied(std::uint32_t tensor, const Resolution& to) {
  if (!IsTouched(to)) {
    renamed_.emplace(to.alias_of, tensor);
    return AddPlacements(tensor, to);
  }
  const auto [owner, first] = renamed_.try_emplace(to.alias_of, tensor);
  const std::int64_t named_so = first ? manifest_.Find(to.alias_of) : -1;
  if (named_so >= 0) owner->second = static_cast<std::uint32_t>(named_so);
  if (owner->second == tensor) return AddPlacements(tensor, to);
  AddAlias(tensor, owner->second);
}

void LoadPlan::Builder::AddAlias(std::uint32_t tensor, std::uint32_t owner) {
  const TensorSpec& expected = manifest_.entry(owner).spec;
  const TensorSpec& spec = manifest_.entry(tensor).spec;
  if (spec.dtype != expected.dtype) {
    problems_.misfits.push_back(Quote(spec.name) + " is tied to " + Quote(expected.name) + ": expected " +
                                Describe(expected) + ", got " + Describe(spec));
  }
  plan_.aliases_.push_back({tensor, owner});
}

// Fills a parameter that has no tensor of its own from the tensors of its stand-in.
void LoadPlan::Builder::PlaceStandIns() {
  std::string first;
  std::size_t count = 0;
  std::map<std::uint32_t, std::uint32_t> filled_by_too;  // parameter -> another one that its tensors fill as well
  for (std::uint32_t i = 0; i < plan_.parameters_.size(); ++i) {
    const PlannedLayer& layer = plan_.layers_[plan_.parameters_[i].layer];
    const auto stand_in = owners_[plan_.parameters_[i].layer]->parameters()[i - layer.first_parameter].stand_in;
    if (!stand_in || touched_[i] || !touched_[layer.first_parameter + *stand_in]) continue;
    filled_by_too.emplace(layer.first_parameter + *stand_in, i);
    touched_[i] = true;
    if (count++ == 0) first = plan_.parameters_[i].spec.name;
  }
  for (std::size_t i = 0, own = plan_.placements_.size(); count != 0 && i < own; ++i) {
    const auto found = filled_by_too.find(plan_.placements_[i].parameter);
    if (found == filled_by_too.end()) continue;
    Placement placement = plan_.placements_[i];
    placement.parameter = found->second;
    plan_.placements_.push_back(placement);
  }
  if (count == 1) log::warn("{} has no tensor, and takes that of the scale beside it", first);
  if (count > 1) log::warn("{} and {} more have no tensor, and take that of the scale beside them", first, count - 1);
}

}  // namespace layercast
