// The rotary embedding's frequencies as Hugging Face transformers computes them, to the bit: positions multiply them,
// so that a last-bit difference would grow with the length of a sequence. Used when an engine is made. Needs libtorch.
#pragma once

#include "engine_side/engine/rotary_table.h"
#include "layercast/model/attention.h"

namespace layercast {

// Types default, linear, dynamic, llama3, yarn. Within max_position_embeddings transformers' dynamic type turns as the
// default one does, whatever its factor. Beyond, it turns by frequencies that change with each token, earlier positions
// too, whose keys are in the cache by then: the built-in engine's sequences end there. Throws kUnsupported for other
// types, kInvalidArgument for a parameter that is missing.
Rope MakeRope(const RotaryEmbedding& embedding);

}  // namespace layercast
