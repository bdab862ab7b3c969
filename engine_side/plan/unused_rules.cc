#include "engine_side/plan/unused_rules.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>

#include "engine_side/plan/tree_names.h"
#include "layercast/model/module.h"

namespace layercast {

std::vector<std::string> UnusedRules(const Module& model, const Manifest& manifest) {
  std::vector<std::string> unused = model.transforms().Describe();
  const std::span<const NameRule> names = model.mapper().rules();
  if (unused.empty() && std::ranges::none_of(names, &NameRule::report_unused)) return unused;
  std::set<std::string> transforms;  // those that are used
  std::set<std::uint32_t> applied;   // indices into `names`
  for (std::uint32_t tensor = 0; tensor < manifest.size(); ++tensor) {
    const TensorSpec& spec = manifest.entry(tensor).spec;
    for (std::string& transform : model.transforms().Describe(spec.name)) transforms.insert(std::move(transform));
    for (const WeightsMapper::Mapping& mapping : MappingsOf(model, spec)) {
      applied.insert(mapping.applied.begin(), mapping.applied.end());
    }
  }
  std::erase_if(unused, [&](const std::string& transform) { return transforms.contains(transform); });
  for (std::uint32_t i = 0; i < names.size(); ++i) {
    if (names[i].report_unused && !applied.contains(i)) unused.push_back(names[i].Describe());
  }
  return unused;
}

}  // namespace layercast
