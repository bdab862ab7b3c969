// What a family's file adds to a config.json that leaves it out, and the language model's fields where they are nested.
#pragma once

#include <nlohmann/json.hpp>

namespace layercast {

// Adds the keys of `defaults` that `config` does not have. A key whose value is null is not missing: it stays null.
void AddDefaults(nlohmann::json& config, const nlohmann::json& defaults);

// The language model's fields, of a configuration that nests them in `text_config`. To those are added what only the
// outer object says (dtype, end tokens, quantization) and what it alone decides (architectures, tied embeddings).
nlohmann::json TextFields(const nlohmann::json& config);

}  // namespace layercast
