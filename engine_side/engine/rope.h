// The rotary embedding's frequencies as Hugging Face transformers computes them, to the bit: positions multiply them,
// so that a last-bit difference would grow with the length of a sequence. Used when an engine is made. Needs libtorch.
#pragma once

#include <vector>

#include "layercast/model/config.h"

namespace layercast {

struct Rope {
  std::vector<float> inverse_frequencies;  // head_dim / 2
  float attention_factor = 1.0F;           // multiplies cosines and sines
};

// Types default, linear, dynamic, llama3, yarn. Dynamic scaling sets in beyond max_position_embeddings, where the
// built-in engine's sequences end: it is the default. Throws kUnsupported for other types and for heads that are
// rotated in part, kInvalidArgument for a parameter that is missing.
Rope MakeRope(const ModelConfig& config);

}  // namespace layercast
