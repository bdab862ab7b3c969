// Reads the rotary embeddings of a config.json. Used by ModelConfig::Parse.
#pragma once

#include "engine_side/model/config/config_fields.h"
#include "layercast/model/config.h"

namespace layercast {

// Types of layers.
inline constexpr const char* kFullAttention = "full_attention";
inline constexpr const char* kSlidingAttention = "sliding_attention";

// Sets `config.rope` and `config.ropes`. `config.max_position_embeddings` must be set already. Throws kInvalidArgument,
// naming the field and what it holds, if a number that the rope type needs is missing, or if no rotation can be
// computed from a number.
void ParseRopes(const ConfigFields& fields, ModelConfig& config);

// The rope with the defaults of its type filled in, and without numbers that have no effect, for a model of
// `max_position_embeddings`. Equal ropes rotate alike, however they were written.
RopeConfig EffectiveRope(RopeConfig rope, std::int64_t max_position_embeddings);

}  // namespace layercast
