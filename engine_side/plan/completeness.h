// Whether placements fill every parameter of a plan exactly once, and where they do not, the names of what is missing
// or there twice. Used by the load plan's builder.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine_side/plan/load_plan.h"

namespace layercast {

// What a builder knows beyond the plan. Borrowed views.
struct PlanOrigins {
  const Manifest& manifest;
  std::span<const Module* const> owners;  // of each layer
  const std::vector<bool>& touched;       // by parameter: some tensor is a part of it, of this rank's or another's
  const std::set<std::string>& refused;   // what the tree calls tensors that have a problem of their own
};

// Adds what is missing and repeated, but for layers that are kept.
void CheckCompleteness(const LoadPlan& plan, const PlanOrigins& origins, PlanProblems& problems);

}  // namespace layercast
