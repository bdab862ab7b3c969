#include "engine_side/plan/completeness.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine_side/plan/coverage.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

class Check {
 public:
  Check(const LoadPlan& plan, const PlanOrigins& origins, PlanProblems& problems)
      : plan_(plan), origins_(origins), problems_(problems) {}

  void Run() {
    for (std::uint32_t i = 0; i < plan_.parameters().size(); ++i) {
      if (!plan_.layers()[plan_.parameters()[i].layer].kept) CheckParameter(i);
    }
  }

 private:
  void CheckParameter(std::uint32_t index) {
    const PlannedParameter& parameter = plan_.parameters()[index];
    if (parameter.fallback) return;
    boxes_.assign(parameter.padding.begin(), parameter.padding.end());
    placed_.clear();
    for (const Placement& placement : plan_.PlacementsInto(parameter)) {
      if (IsOfAnotherPart(placement)) continue;
      boxes_.push_back(placement.destination);
      placed_.push_back(&placement);
    }
    const Coverage coverage = Cover(boxes_);
    if (origins_.touched[index] && coverage.Tiles(parameter.spec.shape)) return;
    for (const auto& [a, b] : coverage.overlaps) {
      problems_.repeated.push_back(NameOfBox(parameter, a) + " and " + NameOfBox(parameter, b) +
                                   " both fill the same elements of " + Quote(parameter.spec.name));
    }
    AddMissing(index, coverage);
  }

  // Brings a number for elements that another part of the layer has brought one for, and its own has not.
  bool IsOfAnotherPart(const Placement& placement) const {
    bool another = false;
    for (auto before = placed_.rbegin(); before != placed_.rend() && placement.shared; ++before) {
      if (!(*before)->shared || (*before)->destination != placement.destination) break;
      if ((*before)->shard_id == placement.shard_id) return false;
      another = true;
    }
    return another;
  }

  std::string NameOfBox(const PlannedParameter& parameter, std::size_t box) const {
    if (box < parameter.padding.size()) return "padding";
    const Placement& placement = *placed_[box - parameter.padding.size()];
    return Quote(origins_.manifest.entry(placement.tensor).spec.name);
  }

  // By the names that checkpoints use for the parts of it that nothing fills.
  void AddMissing(std::uint32_t index, const Coverage& coverage) {
    const PlannedParameter& parameter = plan_.parameters()[index];
    const PlannedLayer& layer = plan_.layers()[parameter.layer];
    const bool filled = parameter.num_placements != 0;
    if (!filled && IsThere(parameter.spec.name)) return;  // fused on disk, and does not fit
    bool named = false;
    for (const ExpectedTensor& tensor :
         origins_.owners[parameter.layer]->Expected(index - layer.first_parameter, layer.path)) {
      if (IsFilled(parameter, tensor.destination)) continue;
      named = true;
      // A tensor that is there and does not fit is a misfit, not missing too.
      if (!IsThere(tensor.name)) problems_.missing.push_back(tensor.name);
    }
    if (named || !coverage.overlaps.empty()) return;
    problems_.missing.push_back(parameter.spec.name + " (" + std::to_string(coverage.elements) + " of " +
                                std::to_string(parameter.spec.num_elements()) + " elements come)");
  }

  // Some of the box, that is.
  bool IsFilled(const PlannedParameter& parameter, const Box& box) const {
    return std::ranges::any_of(plan_.PlacementsInto(parameter), [&](const Placement& placement) {
      const std::array both = {placement.destination, box};
      return !Cover(both).overlaps.empty();
    });
  }

  bool IsThere(std::string_view name) const { return origins_.manifest.Find(name) >= 0; }

  const LoadPlan& plan_;
  const PlanOrigins& origins_;
  PlanProblems& problems_;
  // Scratch of CheckParameter.
  std::vector<Box> boxes_;
  std::vector<const Placement*> placed_;  // whose boxes those are, behind padding
};

}  // namespace

void CheckCompleteness(const LoadPlan& plan, const PlanOrigins& origins, PlanProblems& problems) {
  Check(plan, origins, problems).Run();
}

}  // namespace layercast
