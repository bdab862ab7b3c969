// The rotary embedding's frequencies, to the bit as Hugging Face transformers computes them: they are multiplied by
// positions, so a difference in the last bit would grow with the length of a sequence. Used when an engine is made.
#pragma once

#include "engine_side/engine/rotary_table.h"
#include "layercast/model/attention.h"

namespace layercast {

// Supports the types default, linear, dynamic, llama3 and yarn. Within max_position_embeddings, transformers' dynamic
// type rotates like the default one, whatever its factor. Beyond, its frequencies change with each token, even for
// earlier positions, whose keys are in the cache by then; so the built-in engine's sequences end there. Throws
// kUnsupported for other types, kInvalidArgument for a parameter that is missing, or a theta that fp32 does not hold.
Rope MakeRope(const RotaryEmbedding& embedding);

}  // namespace layercast
