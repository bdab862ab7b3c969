// What is checked before an engine's ranks are started, so that it is reported once. Used by the service.
#pragma once

#include <cstdint>

#include "engine_side/server/engine_service.h"
#include "engine_side/server/group/model_files.h"
#include "engine_side/server/group/rank_group.h"
#include "layercast/model/config.h"

namespace layercast {

// Returns the options. Throws kInvalidArgument for a mode that there is not.
EngineServiceOptions Checked(EngineServiceOptions options);
// The model's configuration. Throws what every rank would refuse.
ModelConfig CheckedConfig(const RankGroupOptions& ranks, const ModelFiles& files);
// How long a sequence may be. Throws kInvalidArgument if the options ask for more than the model has.
std::int64_t ModelLength(const RankGroupOptions& ranks, const ModelConfig& config);

}  // namespace layercast
