// Checks that placements fill every parameter of a plan exactly once, and names what is missing or comes twice. Used by
// the load plan's builder.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine_side/plan/load_plan.h"

namespace layercast {

class Module;

// What a builder knows beyond the plan. Value of borrowed views.
struct PlanOrigins {
  const Manifest& manifest;
  std::span<const Module* const> owners;  // the module of each layer
  const std::vector<bool>& touched;       // by parameter: does any tensor belong to it, on whatever rank?
  const std::set<std::string>& refused;   // tree names of tensors that could not be placed
};

// Adds to `problems` what is missing or repeated. Kept layers are not checked.
void CheckCompleteness(const LoadPlan& plan, const PlanOrigins& origins, PlanProblems& problems);

}  // namespace layercast
