#include "engine_side/model/config/config_defaults.h"

#include <string>

namespace layercast {

void AddDefaults(nlohmann::json& config, const nlohmann::json& defaults) {
  for (const auto& [key, value] : defaults.items()) config.emplace(key, value);
}

nlohmann::json TextFields(const nlohmann::json& config) {
  nlohmann::json fields = config.at("text_config");
  for (const char* outer :
       {"architectures", "model_type", "dtype", "torch_dtype", "bos_token_id", "eos_token_id", "quantization_config"}) {
    const bool named = std::string(outer) == "architectures" && config.contains(outer);
    if (config.contains(outer) && (named || !fields.contains(outer) || fields[outer].is_null()))
      fields[outer] = config[outer];
  }
  // transformers ties embeddings as the outer object says, else by the outer class's default, which equals
  // text_config's.
  constexpr const char* kTie = "tie_word_embeddings";
  fields.erase(kTie);
  if (config.contains(kTie)) fields[kTie] = config[kTie];
  return fields;
}

}  // namespace layercast
