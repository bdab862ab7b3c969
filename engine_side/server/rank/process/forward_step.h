// One forward step of a rank: a pass over a batch of sequences, and a token for each. Used by the rank's process.
#pragma once

#include "engine_side/engine/built_in/engine.h"
#include "layercast/parallel.h"
#include "src/control/json_forms.h"

namespace layercast {

// Params: {"steps": [{"sequence", "tokens", "temperature", "top_p", "top_k", "seed", "index", "adapter"}]}. Returns
// {"picked": [...]}, on one rank alone: all ranks of the last stage have the same logits.
Json ForwardStep(Engine& engine, const ParallelConfig& parallel, const Json& params);

}  // namespace layercast
