// The layers of which a partial version has nothing, in forms for people and controllers to read.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/plan/load_plan.h"

namespace layercast {

// The paths of the plan's kept layers, in the plan's order. Views into the plan.
std::vector<std::string_view> KeptLayers(const LoadPlan& plan);

// Writes paths that differ only in their first number as one text, such as "model.layers.0-3,7.mlp.down_proj", in the
// order of the first path of each text. After 64 texts, a last one says how many paths were left out.
std::vector<std::string> Condensed(std::span<const std::string_view> paths);

// The kept layers whose paths are neither in `may_keep` nor below one of those. None if `may_keep` is empty: then every
// layer may be kept.
std::vector<std::string_view> KeptBeyond(const LoadPlan& plan, std::span<const std::string> may_keep);

// Throws kInvalidArgument if there are layers in KeptBeyond, naming them.
void CheckMayKeep(const LoadPlan& plan, std::span<const std::string> may_keep);

}  // namespace layercast
