#include "layercast/model/registry.h"

#include <utility>

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
  registry.Register("LlamaForCausalLM", BuildLlama);
  registry.Register("Qwen2ForCausalLM", BuildQwen2);
  registry.Register("Qwen3ForCausalLM", BuildQwen3);
  return registry;
}

void ModelRegistry::Register(std::string architecture, ModelFactory factory) {
  const auto [entry, added] = factories_.try_emplace(std::move(architecture), std::move(factory));
  if (!added) {
    throw Error(ErrorCode::kInvalidArgument, "Model architecture " + entry->first + " already registered");
  }
}

std::vector<std::string> ModelRegistry::architectures() const {
  std::vector<std::string> names;
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

std::unique_ptr<Module> ModelRegistry::Build(const ModelConfig& config, const ParallelConfig& parallel) const {
  if (config.architectures.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "No model architectures are specified: config.json has no `architectures`");
  }
  for (const std::string& name : config.architectures) {
    if (const auto found = factories_.find(name); found != factories_.end()) {
      return found->second(config, parallel, config.dtype);
    }
  }
  throw Error(ErrorCode::kUnsupported,
              "Model architectures [" + Joined(config.architectures) +
                  "] are not supported for now. Supported architectures: " + Joined(architectures()));
}

std::unique_ptr<Module> ModelRegistry::Build(const ModelDescription& description,
                                             const ParallelConfig& parallel) const {
  return Build(ModelConfig::Parse(description), parallel);
}

}  // namespace layercast
