// The built-in families, one file each. A family has a factory, registered by name in ModelRegistry::Builtin, and may
// have a Complete function for the defaults of its configuration class, listed in config_defaults.cc by `model_type`
// and by the name of the factory.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "layercast/model/config.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"

namespace layercast {

std::unique_ptr<Module> BuildDeepseekV2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildDeepseekV3(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildGemma2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildGemma3(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildGemma3Text(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildGlm4Moe(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildGptOss(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildLlama(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildMamba2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildMiniMaxM2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildMistral(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildMixtral(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildNemotronH(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildPhi3(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildQwen2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildQwen2Moe(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildQwen3(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildQwen35(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildQwen35Moe(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildQwen3Moe(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
std::unique_ptr<Module> BuildQwen3Next(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);

DraftModel BuildEagle(const ModelConfig& target, const ModelConfig& draft, const ParallelConfig& parallel, DType dtype);
DraftModel BuildEagle3(const ModelConfig& target, const ModelConfig& draft, const ParallelConfig& parallel,
                       DType dtype);
DraftModel DraftOfDeepseekV3(const ModelConfig& target, const ModelConfig& draft, const ParallelConfig& parallel,
                             DType dtype);
DraftModel DraftOfGlm4Moe(const ModelConfig& target, const ModelConfig& draft, const ParallelConfig& parallel,
                          DType dtype);
DraftModel DraftOfQwen35(const ModelConfig& target, const ModelConfig& draft, const ParallelConfig& parallel,
                         DType dtype);
DraftModel DraftOfQwen3Next(const ModelConfig& target, const ModelConfig& draft, const ParallelConfig& parallel,
                            DType dtype);

void CompleteDeepseekV2(nlohmann::json& config);
void CompleteDeepseekV3(nlohmann::json& config);
void CompleteGemma2(nlohmann::json& config);
void CompleteGemma3(nlohmann::json& config);
void CompleteGlm4Moe(nlohmann::json& config);
void CompleteGptOss(nlohmann::json& config);
void CompleteMamba2(nlohmann::json& config);
void CompleteMiniMaxM2(nlohmann::json& config);
void CompleteMistral(nlohmann::json& config);
void CompleteMixtral(nlohmann::json& config);
void CompleteNemotronH(nlohmann::json& config);
void CompletePhi3(nlohmann::json& config);
void CompleteQwen2(nlohmann::json& config);
void CompleteQwen2Moe(nlohmann::json& config);
void CompleteQwen3(nlohmann::json& config);
void CompleteQwen35(nlohmann::json& config);
void CompleteQwen35Moe(nlohmann::json& config);
void CompleteQwen3Moe(nlohmann::json& config);
void CompleteQwen3Next(nlohmann::json& config);

}  // namespace layercast
