// What every family's file needs. A family has a factory, and may have a Complete function for the defaults of its
// configuration class and a factory of draft models. They are named in engine_side/model/registry/builtin_families.cc.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "layercast/model/config.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"

namespace layercast {

void CompleteQwen2(nlohmann::json& config);  // Qwen3's class has these defaults too

}  // namespace layercast
