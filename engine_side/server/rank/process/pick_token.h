// Picks the tokens that logits give sequences, as the steps ask. Used by the rank's process.
#pragma once

#include "engine_side/engine/forward_pass.h"
#include "src/control/json_forms.h"

namespace layercast {

// Returns for each row {"token", "logprob"}, or {"error"} where the logits are broken: that fails this sequence, and
// not the step, which all ranks have made. `steps` have "temperature", "top_p", "top_k", "seed" and "index".
Json PickTokens(const Logits& logits, const Json& steps);

}  // namespace layercast
