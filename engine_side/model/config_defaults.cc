#include "engine_side/model/config_defaults.h"

#include <map>

#include "engine_side/model/config_fields.h"
#include "engine_side/model/families/families.h"

namespace layercast {

void AddDefaults(nlohmann::json& config, const nlohmann::json& defaults) {
  for (const auto& [key, value] : defaults.items()) config.emplace(key, value);
}

void CompleteConfig(nlohmann::json& config) {
  static const std::map<std::string, void (*)(nlohmann::json&)> kFamilies = {{"deepseek_v2", CompleteDeepseekV2},
                                                                             {"deepseek_v3", CompleteDeepseekV3},
                                                                             {"gemma2", CompleteGemma2},
                                                                             {"gemma3", CompleteGemma3},
                                                                             {"gemma3_text", CompleteGemma3},
                                                                             {"glm4_moe", CompleteGlm4Moe},
                                                                             {"gpt_oss", CompleteGptOss},
                                                                             {"mamba2", CompleteMamba2},
                                                                             {"minimax_m2", CompleteMiniMaxM2},
                                                                             {"mistral", CompleteMistral},
                                                                             {"mixtral", CompleteMixtral},
                                                                             {"nemotron_h", CompleteNemotronH},
                                                                             {"phi3", CompletePhi3},
                                                                             {"qwen2", CompleteQwen2},
                                                                             {"qwen2_moe", CompleteQwen2Moe},
                                                                             {"qwen3", CompleteQwen3},
                                                                             {"qwen3_5", CompleteQwen35},
                                                                             {"qwen3_5_moe", CompleteQwen35Moe},
                                                                             {"qwen3_5_moe_text", CompleteQwen35Moe},
                                                                             {"qwen3_5_text", CompleteQwen35},
                                                                             {"qwen3_moe", CompleteQwen3Moe},
                                                                             {"qwen3_next", CompleteQwen3Next}};
  const auto family = kFamilies.find(ConfigFields(config).Text("model_type", ""));
  if (family != kFamilies.end()) family->second(config);
}

bool IsAttentionFree(const std::string& model_type) { return model_type == "mamba2"; }

nlohmann::json TextFields(const nlohmann::json& config) {
  nlohmann::json fields = config.at("text_config");
  for (const char* outer : {"architectures", "model_type", "dtype", "torch_dtype", "tie_word_embeddings",
                            "bos_token_id", "eos_token_id", "quantization_config"}) {
    const bool named = std::string(outer) == "architectures" && config.contains(outer);
    if (config.contains(outer) && (named || !fields.contains(outer) || fields[outer].is_null()))
      fields[outer] = config[outer];
  }
  return fields;
}

}  // namespace layercast
