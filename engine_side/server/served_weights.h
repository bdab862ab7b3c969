// What is asked of the weights that an engine serves, over all its ranks: written to files, held against a checkpoint,
// lent to another engine. Used by the engine's service, while no reload runs.
#pragma once

#include <string>

#include "engine_side/server/rank_group.h"
#include "layercast/model_description.h"
#include "src/control/json_forms.h"

namespace layercast {

// Writes them to `directory`, as `sharded_state`, labelled `version`, with the model's config.json. Returns {"files",
// "tensors", "bytes", "version"}. Throws what a rank does, or the folder; it is then not there, or as it was.
Json ExportServed(RankGroup& ranks, const Version& version, const ModelDescription& description,
                  const std::string& directory);

// Against a cold load of the checkpoint that `params` names. Returns {"equal", "tensors", "bytes", "differences"}.
Json CompareServed(RankGroup& ranks, const Json& params);

// `status`: Reloader's, of the version that they are lent as. `endpoint`: the engine's, on whose address each rank
// lends. Returns {"version", "tp", "pp", "pp_layers", "expert_parallel", "expert_placement", "quantization",
// "power_of_two_scales", "ranks"}.
Json LendServed(RankGroup& ranks, const Json& status, const std::string& endpoint, bool allow_remote);

}  // namespace layercast
