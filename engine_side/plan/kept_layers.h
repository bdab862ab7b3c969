// The layers that a partial version has nothing of, for people and controllers to look at.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/plan/load_plan.h"

namespace layercast {

// The paths of the plan's layers that are kept, in its order. Views of the plan.
std::vector<std::string_view> KeptLayers(const LoadPlan& plan);

// Paths that differ in the first number alone as one, "model.layers.0-3,7.mlp.down_proj", in the order of their first;
// of more than 64 such texts the last one says how many paths the others are.
std::vector<std::string> Condensed(std::span<const std::string_view> paths);

// Kept layers whose paths are none of `may_keep`, nor below one of them; none where it is empty: all may be kept.
std::vector<std::string_view> KeptBeyond(const LoadPlan& plan, std::span<const std::string> may_keep);

// Throws kInvalidArgument naming them.
void CheckMayKeep(const LoadPlan& plan, std::span<const std::string> may_keep);

}  // namespace layercast
