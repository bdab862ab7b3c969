// What config.json leaves out: the values that the configuration classes of Hugging Face transformers take where a key
// is missing. Used by ModelConfig::Parse.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace layercast {

// Adds the keys that are missing, where their defaults are others than ModelConfig's own. A key that is there and null
// stays null.
void AddConfigDefaults(const std::string& model_type, nlohmann::json& config);

// Whether models of this type have neither attention heads nor an MLP, and so no sizes for them.
bool IsAttentionFree(const std::string& model_type);

// A configuration whose own names for what all have (layers_block_type, mlp_hidden_act) are the usual ones.
nlohmann::json WithUsualNames(nlohmann::json config);

// The language model's fields of a configuration that nests them in `text_config`: those, and what only the outer
// object says (architectures, dtype, tied embeddings, end tokens, quantization).
nlohmann::json TextFields(const nlohmann::json& config);

}  // namespace layercast
