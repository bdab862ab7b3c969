// The rotary embeddings of a config.json. Used by ModelConfig::Parse.
#pragma once

#include "engine_side/model/config_fields.h"
#include "layercast/model/config.h"

namespace layercast {

inline constexpr const char* kSlidingAttention = "sliding_attention";  // a type of layer

// `config.rope` and `config.ropes`, once its max_position_embeddings is known. Throws kInvalidArgument, naming the
// field and what it holds, for one that the type needs and that is missing, and for numbers that nothing could be
// turned by.
void ParseRopes(const ConfigFields& fields, ModelConfig& config);

}  // namespace layercast
