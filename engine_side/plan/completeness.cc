#include "engine_side/plan/completeness.h"

#include <algorithm>
#include <array>
#include <span>

#include "layercast/model/module.h"
#include "src/base/utf8.h"
#include "src/tensor/parts/coverage.h"

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
    const std::span<const Placement> into = plan_.PlacementsInto(parameter);
    for (std::size_t i = 0; i < into.size(); ++i) {
      if (SharesElements(parameter, into.first(i), into[i])) continue;
      boxes_.push_back(into[i].destination);
      placed_.push_back(&into[i]);
    }
    const Coverage coverage = Cover(boxes_);
    if (origins_.touched[index] && coverage.Tiles(parameter.spec.shape)) return;
    for (const auto& [a, b] : coverage.overlaps) {
      AddRepeated(parameter, NameOfBox(parameter, a), NameOfBox(parameter, b));
    }
    AddMissing(index, coverage);
  }

  // Whether other parts of the layer fill the same elements as this shared placement. If a part itself fills them
  // twice, that is a problem.
  bool SharesElements(const PlannedParameter& parameter, std::span<const Placement> before,
                      const Placement& placement) {
    bool shares = false;
    for (auto other = before.rbegin(); other != before.rend() && placement.shared; ++other) {
      if (!other->shared || other->destination != placement.destination) break;
      if (other->shard_id == placement.shard_id) AddRepeated(parameter, NameOf(*other), NameOf(placement));
      shares = true;
    }
    return shares;
  }

  void AddRepeated(const PlannedParameter& parameter, const std::string& one, const std::string& other) {
    problems_.repeated.push_back(one + " and " + other + " both fill the same elements of " +
                                 Quote(parameter.spec.name));
  }

  std::string NameOf(const Placement& placement) const {
    return Quote(origins_.manifest.entry(placement.tensor).spec.name);
  }

  std::string NameOfBox(const PlannedParameter& parameter, std::size_t box) const {
    if (box < parameter.padding.size()) return "padding";
    return NameOf(*placed_[box - parameter.padding.size()]);
  }

  // Names what is missing as checkpoints do, for those parts of the parameter that nothing fills.
  void AddMissing(std::uint32_t index, const Coverage& coverage) {
    const PlannedParameter& parameter = plan_.parameters()[index];
    const PlannedLayer& layer = plan_.layers()[parameter.layer];
    const bool filled = parameter.num_placements != 0;
    if (!filled && IsRefused(parameter.spec.name)) return;  // the fused tensor is there, and does not fit
    bool named = false;
    for (const ExpectedTensor& tensor :
         origins_.owners[parameter.layer]->Expected(index - layer.first_parameter, layer.path)) {
      if (IsFilled(parameter, tensor.destination)) continue;
      named = true;
      if (!IsRefused(tensor.name)) problems_.missing.push_back(tensor.name);
    }
    if (named || !coverage.overlaps.empty()) return;
    problems_.missing.push_back(parameter.spec.name + " (" + std::to_string(coverage.elements) + " of " +
                                std::to_string(parameter.spec.num_elements()) + " elements come)");
  }

  // Whether any element of the box is filled.
  bool IsFilled(const PlannedParameter& parameter, const Box& box) const {
    return std::ranges::any_of(plan_.PlacementsInto(parameter), [&](const Placement& placement) {
      const std::array both = {placement.destination, box};
      return !Cover(both).overlaps.empty();
    });
  }

  // Whether the tensor is there but could not be placed: it is then reported as a misfit, and not as missing too. A
  // tensor that a rule drops although the model needs it does count as missing.
  bool IsRefused(const std::string& name) const { return origins_.refused.contains(name); }

  const LoadPlan& plan_;
  const PlanOrigins& origins_;
  PlanProblems& problems_;
  // Scratch of CheckParameter.
  std::vector<Box> boxes_;
  std::vector<const Placement*> placed_;  // whose boxes follow the padding in boxes_
};

}  // namespace

void CheckCompleteness(const LoadPlan& plan, const PlanOrigins& origins, PlanProblems& problems) {
  Check(plan, origins, problems).Run();
}

}  // namespace layercast
