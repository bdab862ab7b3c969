// The factories of the built-in families: one file each, registered by name in ModelRegistry::Builtin.
#pragma once

#include <memory>

#include "layercast/model/config.h"
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

}  // namespace layercast
