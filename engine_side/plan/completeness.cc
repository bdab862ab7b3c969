#include "engine_side/plan/completeness.h"

#include <string_view>
#include <unordered_set>

#include "engine_side/model/path.h"
#include "engine_side/plan/coverage.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

class Check {
 public:
  Check(const LoadPlan& plan, const PlanOrigins& origins, PlanProblems& problems)
      : plan_(plan), origins_(origins), problems_(problems) {}

  void Run() {
    const std::unordered_set<std::string_view> partial(origins_.partial.begin(), origins_.partial.end());
    for (std::uint32_t i = 0; i < plan_.parameters().size(); ++i) {
      if (origins_.touched[i] || !partial.contains(plan_.parameters()[i].spec.name)) CheckParameter(i);
    }
    if (!partial.empty()) CheckPartial();
  }

 private:
  void CheckParameter(std::uint32_t index) {
    const PlannedParameter& parameter = plan_.parameters()[index];
    boxes_.assign(parameter.padding.begin(), parameter.padding.end());
    for (const Placement& placement : plan_.PlacementsInto(parameter)) boxes_.push_back(placement.destination);
    const Coverage coverage = Cover(boxes_);
    if (origins_.touched[index] && coverage.Tiles(parameter.spec.shape)) return;
    for (const auto& [a, b] : coverage.overlaps) {
      problems_.repeated.push_back(NameOfBox(parameter, a) + " and " + NameOfBox(parameter, b) +
                                   " both fill the same elements of " + Quote(parameter.spec.name));
    }
    AddMissing(parameter, coverage);
  }

  std::string NameOfBox(const PlannedParameter& parameter, std::size_t box) const {
    if (box < parameter.padding.size()) return "padding";
    const Placement& placement = plan_.PlacementsInto(parameter)[box - parameter.padding.size()];
    return Quote(origins_.manifest.entry(placement.tensor).spec.name);
  }

  // By the names that checkpoints use, where the layer has some for its parts.
  void AddMissing(const PlannedParameter& parameter, const Coverage& coverage) {
    const bool filled = parameter.num_placements != 0;
    if (!filled && IsThere(parameter.spec.name)) return;  // fused on disk, and does not fit
    if (AddMissingShards(parameter) || !coverage.overlaps.empty()) return;
    if (filled) {
      problems_.missing.push_back(parameter.spec.name + " (" + std::to_string(coverage.elements) + " of " +
                                  std::to_string(parameter.spec.num_elements()) + " elements come)");
    } else {
      problems_.missing.push_back(parameter.spec.name);
    }
  }

  bool AddMissingShards(const PlannedParameter& parameter) {
    const std::string& path = plan_.layers()[parameter.layer].path;
    const std::string_view parent(path.data(), path.find('.') == std::string::npos ? 0 : path.rfind('.'));
    const std::string_view suffix = std::string_view(parameter.spec.name).substr(path.empty() ? 0 : path.size() + 1);
    std::unordered_set<std::string_view> shards;
    for (const Placement& placement : plan_.PlacementsInto(parameter)) shards.insert(placement.shard_id);
    bool any = false;
    for (const ShardName& shard : origins_.owners[parameter.layer]->shard_names()) {
      if (!shards.insert(shard.shard_id).second) continue;
      any = true;
      // A tensor that is there and does not fit is a misfit, not missing too.
      const std::string name = JoinPath(JoinPath(parent, shard.checkpoint_name), suffix);
      if (!IsThere(name)) problems_.missing.push_back(name);
    }
    return any;
  }

  void CheckPartial() {
    std::unordered_set<std::string_view> names;
    for (const PlannedParameter& parameter : plan_.parameters()) names.insert(parameter.spec.name);
    for (const std::string& name : origins_.partial) {
      if (!names.contains(name)) problems_.unexpected.push_back("partial: no parameter is called " + Quote(name));
    }
  }

  bool IsThere(std::string_view name) const { return origins_.manifest.Find(name) >= 0; }

  const LoadPlan& plan_;
  const PlanOrigins& origins_;
  PlanProblems& problems_;
  std::vector<Box> boxes_;  // scratch of CheckParameter
};

}  // namespace

void CheckCompleteness(const LoadPlan& plan, const PlanOrigins& origins, PlanProblems& problems) {
  Check(plan, origins, problems).Run();
}

}  // namespace layercast
