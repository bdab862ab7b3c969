#include "cli/adapter_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "engine_side/adapters/adapter_terms.h"
#include "engine_side/adapters/load/adapter_placing.h"
#include "layercast/error.h"
#include "src/adapter/adapter_folder.h"
#include "src/adapter/adapter_tensors.h"

namespace layercast::cli {

AdapterPlan PlanAdapter(const std::string& folder, const Module& base) {
  const AdapterFolder adapter(folder);
  AdapterTensors tensors = SurveyAdapter(adapter.specs(), adapter.config());
  AdapterPlan plan;
  plan.manifest = Manifest::OfSpecs({}, 0, adapter.specs());
  std::int64_t largest = 1;
  for (const AdapterModule& module : tensors.modules) {
    largest = std::max(largest, module.rank);
    plan.modules.push_back({{"path", module.path}, {"rank", module.rank}, {"scale", module.scale}});
  }
  for (const AdapterTensors::Problem& problem : tensors.problems) plan.problems.push_back(problem.message);

  const std::vector<AdapterTerm> terms = AdapterTermsOf(base);
  std::vector<std::uint32_t> all(adapter.specs().size());
  std::iota(all.begin(), all.end(), 0U);
  const auto place = [&](const AdapterTensors& of) {
    return PlaceAdapter(base, {terms, largest, DType::kF32},
                        {adapter.specs(), adapter.specs(), all, adapter.config(), of});
  };
  std::erase_if(tensors.modules, [&](const AdapterModule& module) {  // those that fit are planned
    AdapterTensors one;
    one.modules = {module};
    try {
      static_cast<void>(place(one));
      return false;
    } catch (const Error& error) {
      plan.problems.emplace_back(error.what());
      return true;
    }
  });
  plan.tree = place(tensors).Tree();
  return plan;
}

}  // namespace layercast::cli
