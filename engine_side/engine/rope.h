// The rotary embedding's frequencies as Hugging Face transformers computes them, to the bit: positions multiply them,
// so that a last-bit difference would grow with the length of a sequence. Used when an engine is made. Needs libtorch.
#pragma once

#include "engine_side/engine/rotary_table.h"
#include "layercast/model/attention.h"

namespace layercast {

// Types default, linear, dynamic, llama3, yarn. Dynamic scaling sets in beyond max_position_embeddings, where the
// built-in engine's sequences end: it is the default. Throws kUnsupported for other types, kInvalidArgument for a
// parameter that is missing.
Rope MakeRope(const RotaryEmbedding& embedding);

}  // namespace layercast
