#include "engine_side/model/registry/config_classes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/families/families.h"

namespace layercast {
namespace {

// A configuration class of transformers, the architecture that is built from it, and the function that adds its
// defaults.
struct ConfigClass {
  std::string_view model_type;
  std::string_view architecture;
  void (*complete)(nlohmann::json&);
};

constexpr auto kClasses =
    std::to_array<ConfigClass>({{"deepseek_v2", "DeepseekV2ForCausalLM", CompleteDeepseekV2},
                                {"deepseek_v3", "DeepseekV3ForCausalLM", CompleteDeepseekV3},
                                {"gemma2", "Gemma2ForCausalLM", CompleteGemma2},
                                {"gemma3", "Gemma3ForConditionalGeneration", CompleteGemma3},
                                {"gemma3_text", "Gemma3ForCausalLM", CompleteGemma3},
                                {"glm4_moe", "Glm4MoeForCausalLM", CompleteGlm4Moe},
                                {"gpt_oss", "GptOssForCausalLM", CompleteGptOss},
                                {"llama", "LlamaForCausalLM", [](nlohmann::json&) {}},  // our own are Llama's
                                {"mamba2", "Mamba2ForCausalLM", CompleteMamba2},
                                {"minimax_m2", "MiniMaxM2ForCausalLM", CompleteMiniMaxM2},
                                {"mistral", "MistralForCausalLM", CompleteMistral},
                                {"mixtral", "MixtralForCausalLM", CompleteMixtral},
                                {"nemotron_h", "NemotronHForCausalLM", CompleteNemotronH},
                                {"phi3", "Phi3ForCausalLM", CompletePhi3},
                                {"qwen2", "Qwen2ForCausalLM", CompleteQwen2},
                                {"qwen2_moe", "Qwen2MoeForCausalLM", CompleteQwen2Moe},
                                {"qwen3", "Qwen3ForCausalLM", CompleteQwen3},
                                {"qwen3_5", "Qwen3_5ForConditionalGeneration", CompleteQwen35},
                                {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", CompleteQwen35Moe},
                                {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", CompleteQwen35Moe},
                                {"qwen3_5_text", "Qwen3_5ForCausalLM", CompleteQwen35},
                                {"qwen3_moe", "Qwen3MoeForCausalLM", CompleteQwen3Moe},
                                {"qwen3_next", "Qwen3NextForCausalLM", CompleteQwen3Next}});

// Finds the class by `model_type` or, if none has that, by `architectures`, which says what is built: MiniMax-M2 was
// first published as "minimax", Kimi-K2 calls its DeepSeek-V3 "kimi_k2", and a file may have no `model_type` at all.
// Null if there is no such class.
const ConfigClass* ClassOf(const nlohmann::json& config) {
  const ConfigFields fields(config);
  const std::string type = fields.Text("model_type", "");
  const auto* const by_type = std::ranges::find(kClasses, type, &ConfigClass::model_type);
  if (by_type != kClasses.end()) return by_type;
  for (const std::string& name : fields.Texts("architectures")) {
    const auto* const by_name = std::ranges::find(kClasses, name, &ConfigClass::architecture);
    if (by_name != kClasses.end()) return by_name;
  }
  return nullptr;
}

}  // namespace

void CompleteConfig(nlohmann::json& config) {
  const ConfigClass* of = ClassOf(config);
  if (of == nullptr) return;
  if (ConfigFields(config).Text("model_type", "").empty()) config["model_type"] = of->model_type;
  of->complete(config);
}

bool IsAttentionFree(const nlohmann::json& config) {
  const ConfigClass* of = ClassOf(config);
  return of != nullptr && of->model_type == "mamba2";
}

}  // namespace layercast
