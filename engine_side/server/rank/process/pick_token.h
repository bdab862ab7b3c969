// Picks the token that a row of logits gives a sequence, as the step asks. Used by the rank's process.
#pragma once

#include <span>

#include "src/control/json_forms.h"

namespace layercast {

// Returns {"token", "logprob"}, or {"error"} where the logits are broken: that fails this sequence, and not the step,
// which all ranks have made. `step` has "temperature", "top_p", "top_k", "seed" and "index".
Json PickToken(std::span<const float> logits, const Json& step);

}  // namespace layercast
