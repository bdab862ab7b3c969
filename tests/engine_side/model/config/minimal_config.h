// The least that a config.json says of a model, as the tests of this folder vary it.
#pragma once

#include <nlohmann/json.hpp>

namespace layercast::testing {

inline nlohmann::json MinimalConfig() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 100},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 8}};
}

inline nlohmann::json ConfigWith(const nlohmann::json& fields) {
  nlohmann::json json = MinimalConfig();
  json.update(fields);
  return json;
}

}  // namespace layercast::testing
