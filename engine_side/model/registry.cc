#include "layercast/model/registry.h"

#include <utility>

#include "engine_side/model/checkpoint_quantization.h"
#include "engine_side/model/families/families.h"
#include "layercast/error.h"

namespace layercast {
namespace {

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

ModelRegistry ModelRegistry::Builtin() {
  ModelRegistry registry;
  registry.Register("DeepseekV2ForCausalLM", BuildDeepseekV2);
  registry.Register("DeepseekV3ForCausalLM", BuildDeepseekV3, "draft layers are skipped");
  registry.Register("Gemma2ForCausalLM", BuildGemma2);
  registry.Register("Gemma3ForCausalLM", BuildGemma3);
  registry.Register("Gemma3ForConditionalGeneration", BuildGemma3Text, "text alone: the vision tower is skipped");
  registry.Register("Glm4MoeForCausalLM", BuildGlm4Moe, "draft layers are skipped");
  registry.Register("GptOssForCausalLM", BuildGptOss);
  registry.Register("LlamaForCausalLM", BuildLlama);
  registry.Register("Mamba2ForCausalLM", BuildMamba2);
  registry.Register("MiniMaxM2ForCausalLM", BuildMiniMaxM2);
  registry.Register("MistralForCausalLM", BuildMistral);
  registry.Register("MixtralForCausalLM", BuildMixtral);
  registry.Register("NemotronHForCausalLM", BuildNemotronH, "draft layers are skipped");
  registry.Register("Phi3ForCausalLM", BuildPhi3, "no forward with rope type longrope");
  registry.Register("Qwen2ForCausalLM", BuildQwen2);
  registry.Register("Qwen2MoeForCausalLM", BuildQwen2Moe);
  registry.Register("Qwen3ForCausalLM", BuildQwen3);
  registry.Register("Qwen3MoeForCausalLM", BuildQwen3Moe);
  registry.Register("Qwen3NextForCausalLM", BuildQwen3Next, "draft layers are skipped");
  for (const char* kind : {"ForCausalLM", "ForConditionalGeneration"}) {
    const char* limits = "text alone: the vision tower and draft layers are skipped";
    registry.Register("Qwen3_5" + std::string(kind), BuildQwen35, limits);
    registry.Register("Qwen3_5Moe" + std::string(kind), BuildQwen35Moe, limits);
  }
  return registry;
}

void ModelRegistry::Register(std::string architecture, ModelFactory factory, std::string limits) {
  const auto [entry, added] =
      families_.try_emplace(std::move(architecture), Family{std::move(factory), std::move(limits)});
  if (!added) {
    throw Error(ErrorCode::kInvalidArgument, "Model architecture " + entry->first + " already registered");
  }
}

std::vector<std::string> ModelRegistry::architectures() const {
  std::vector<std::string> names;
  for (const auto& [name, family] : families_) names.push_back(name);
  return names;
}

const std::string& ModelRegistry::limits(const std::string& architecture) const {
  return families_.at(architecture).limits;
}

std::unique_ptr<Module> ModelRegistry::Build(const ModelConfig& config, const ParallelConfig& parallel,
                                             const WeightsMapper& names) const {
  if (config.architectures.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "No model architectures are specified: config.json has no `architectures`");
  }
  for (const std::string& name : config.architectures) {
    if (const auto found = families_.find(name); found != families_.end()) {
      std::unique_ptr<Module> model = found->second.build(config, parallel, config.dtype);
      model->SetMapper(names | model->mapper());
      CheckpointQuantization::Parse(config.json).ApplyTo(*model);
      return model;
    }
  }
  throw Error(ErrorCode::kUnsupported,
              "Model architectures [" + Joined(config.architectures) +
                  "] are not supported for now. Supported architectures: " + Joined(architectures()));
}

std::unique_ptr<Module> ModelRegistry::Build(const ModelDescription& description, const ParallelConfig& parallel,
                                             const WeightsMapper& names) const {
  return Build(ModelConfig::Parse(description), parallel, names);
}

}  // namespace layercast
