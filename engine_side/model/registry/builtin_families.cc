#include "engine_side/model/registry/builtin_families.h"

namespace layercast {

// Each is in the family's file in engine_side/model/families.
BuildFamily BuildDeepseekV2, BuildDeepseekV3, BuildGemma2, BuildGemma3, BuildGemma3Text, BuildGlm4Moe, BuildGptOss,
    BuildLlama, BuildMamba2, BuildMiniMaxM2, BuildMistral, BuildMixtral, BuildNemotronH, BuildPhi3, BuildQwen2,
    BuildQwen2Moe, BuildQwen3, BuildQwen35, BuildQwen35Moe, BuildQwen3Moe, BuildQwen3Next;
BuildDraft BuildEagle, BuildEagle3, DraftOfDeepseekV3, DraftOfGlm4Moe, DraftOfQwen35, DraftOfQwen3Next;
CompleteFamily CompleteDeepseekV2, CompleteDeepseekV3, CompleteGemma2, CompleteGemma3, CompleteGlm4Moe, CompleteGptOss,
    CompleteMamba2, CompleteMiniMaxM2, CompleteMistral, CompleteMixtral, CompleteNemotronH, CompletePhi3, CompleteQwen2,
    CompleteQwen2Moe, CompleteQwen3, CompleteQwen35, CompleteQwen35Moe, CompleteQwen3Moe, CompleteQwen3Next;

namespace {

constexpr std::string_view kDraftAskedFor = "draft layers are skipped unless asked for";
constexpr std::string_view kTextAlone = "text alone: the vision tower is skipped, draft layers unless asked for";

// A new family is a row here, with the names of its functions above.
constexpr BuiltinFamily kFamilies[] = {
    {"deepseek_v2", "DeepseekV2ForCausalLM", BuildDeepseekV2, CompleteDeepseekV2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", BuildDeepseekV3, CompleteDeepseekV3, kDraftAskedFor, DraftOfDeepseekV3},
    {"gemma2", "Gemma2ForCausalLM", BuildGemma2, CompleteGemma2},
    {"gemma3", "Gemma3ForConditionalGeneration", BuildGemma3Text, CompleteGemma3,
     "text alone: the vision tower is skipped"},
    {"gemma3_text", "Gemma3ForCausalLM", BuildGemma3, CompleteGemma3},
    {"glm4_moe", "Glm4MoeForCausalLM", BuildGlm4Moe, CompleteGlm4Moe, kDraftAskedFor, DraftOfGlm4Moe},
    {"gpt_oss", "GptOssForCausalLM", BuildGptOss, CompleteGptOss},
    {"llama", "LlamaForCausalLM", BuildLlama, [](nlohmann::json&) {}},  // our own defaults are Llama's
    {"mamba2", "Mamba2ForCausalLM", BuildMamba2, CompleteMamba2},
    {"minimax_m2", "MiniMaxM2ForCausalLM", BuildMiniMaxM2, CompleteMiniMaxM2},
    {"mistral", "MistralForCausalLM", BuildMistral, CompleteMistral},
    {"mixtral", "MixtralForCausalLM", BuildMixtral, CompleteMixtral},
    {"nemotron_h", "NemotronHForCausalLM", BuildNemotronH, CompleteNemotronH, "draft layers are skipped"},
    {"phi3", "Phi3ForCausalLM", BuildPhi3, CompletePhi3, "no forward with rope type longrope"},
    {"qwen2", "Qwen2ForCausalLM", BuildQwen2, CompleteQwen2},
    {"qwen2_moe", "Qwen2MoeForCausalLM", BuildQwen2Moe, CompleteQwen2Moe},
    {"qwen3", "Qwen3ForCausalLM", BuildQwen3, CompleteQwen3},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", BuildQwen35, CompleteQwen35, kTextAlone, DraftOfQwen35},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", BuildQwen35Moe, CompleteQwen35Moe, kTextAlone,
     DraftOfQwen3Next},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", BuildQwen35Moe, CompleteQwen35Moe, kTextAlone, DraftOfQwen3Next},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", BuildQwen35, CompleteQwen35, kTextAlone, DraftOfQwen35},
    {"qwen3_moe", "Qwen3MoeForCausalLM", BuildQwen3Moe, CompleteQwen3Moe},
    {"qwen3_next", "Qwen3NextForCausalLM", BuildQwen3Next, CompleteQwen3Next, kDraftAskedFor, DraftOfQwen3Next},
};

constexpr BuiltinDraftModel kDraftModels[] = {
    {"LlamaForCausalLM", BuildEagle},        {"EagleLlamaForCausalLM", BuildEagle},
    {"LlamaForCausalLMEagle", BuildEagle},   {"LlamaForCausalLMEagle3", BuildEagle3},
    {"Eagle3LlamaForCausalLM", BuildEagle3},
};

}  // namespace

std::span<const BuiltinFamily> BuiltinFamilies() { return kFamilies; }
std::span<const BuiltinDraftModel> BuiltinDraftModels() { return kDraftModels; }

}  // namespace layercast
