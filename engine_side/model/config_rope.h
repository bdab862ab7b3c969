// Reads the rotary embeddings of a config.json. Used by ModelConfig::Parse.
#pragma once

#include "engine_side/model/config_fields.h"
#include "layercast/model/config.h"

namespace layercast {

inline constexpr const char* kSlidingAttention = "sliding_attention";  // a type of layer

// Sets `config.rope` and `config.ropes`. `config.max_position_embeddings` must be set already. Throws kInvalidArgument,
// naming the field and what it holds, if a number that the rope type needs is missing, or if no rotation can be
// computed from a number.
void ParseRopes(const ConfigFields& fields, ModelConfig& config);

}  // namespace layercast
