// What config.json leaves out, or has names of its own for: the values that the configuration classes of Hugging Face
// transformers take, by `model_type`, or by `architectures` where that is none of theirs. Each family's are in its
// file. Used by ModelConfig::Parse.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace layercast {

// Adds the keys that are missing. One that is there and null stays null.
void AddDefaults(nlohmann::json& config, const nlohmann::json& defaults);

// Adds what is left out where the class's defaults are others than ModelConfig's own, and the usual names (layer_types)
// of what it has other names for. Throws kInvalidArgument for what is not an object.
void CompleteConfig(nlohmann::json& config);

// Whether such models have neither attention heads nor an MLP, and so no sizes for them.
bool IsAttentionFree(const nlohmann::json& config);

// The language model's fields of a configuration that nests them in `text_config`: those, what only the outer object
// says (dtype, end tokens, quantization), and what it alone decides (architectures, tied embeddings).
nlohmann::json TextFields(const nlohmann::json& config);

}  // namespace layercast
