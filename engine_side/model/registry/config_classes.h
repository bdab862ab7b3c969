// Fills in what a config.json leaves out and renames fields that it spells in its own way, as the configuration classes
// of Hugging Face transformers do. The class is found by `model_type`, or by `architectures` if there is none or no
// class has it. Each family's defaults are in the family's file. Used by ModelConfig::Parse.
#pragma once

#include <nlohmann/json.hpp>

namespace layercast {

// Adds a missing `model_type`, the missing fields whose default in the configuration class differs from ModelConfig's
// own, and the usual names (layer_types) of fields that the class names otherwise. Throws kInvalidArgument if `config`
// is not an object.
void CompleteConfig(nlohmann::json& config);

// Whether models of this configuration have neither attention heads nor an MLP, and so no sizes for them.
bool IsAttentionFree(const nlohmann::json& config);

}  // namespace layercast
