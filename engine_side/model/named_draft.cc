#include "engine_side/model/named_draft.h"

#include "layercast/model/draft_model.h"
#include "layercast/model/registry.h"

namespace layercast {

std::unique_ptr<Module> BuildWithNamedDraft(const ModelConfig& target, const ParallelConfig& parallel,
                                            const std::string& draft) {
  const ModelRegistry registry = ModelRegistry::Builtin();
  if (draft.empty()) return registry.Build(target, parallel);
  if (draft == kOwnDraftLayers) return registry.BuildWithDraft(target, std::nullopt, parallel);
  return registry.BuildWithDraft(target, ModelConfig::Parse(ModelDescription::FromDirectory(draft)), parallel);
}

CheckpointSource WithNamedDraft(CheckpointSource target, const std::string& draft) {
  if (!draft.empty() && draft != kOwnDraftLayers) target.secondary.push_back({kDraftPrefix, draft});
  return target;
}

}  // namespace layercast
