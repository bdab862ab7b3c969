#include "engine_side/model/registry/named_draft.h"

#include "layercast/error.h"
#include "layercast/model/config.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/registry.h"
#include "src/base/naming_source.h"

namespace layercast {
namespace {

std::unique_ptr<Module> Build(const ModelRegistry& registry, const ModelConfig& target, const ParallelConfig& parallel,
                              const NamedDraft& draft) {
  if (draft.name.empty()) return registry.Build(target, parallel);
  if (!draft.folder) return registry.BuildWithDraft(target, std::nullopt, parallel);
  return registry.BuildWithDraft(target, registry.DraftConfigOf(*draft.folder), parallel);
}

}  // namespace

NamedDraft NamedDraft::Read(const std::string& name) {
  if (name.empty() || name == kOwnDraftLayers) return {.name = name};
  return {.name = name, .folder = ModelDescription::FromDirectory(name)};
}

std::unique_ptr<Module> BuildWithNamedDraft(const ModelDescription& target, const ParallelConfig& parallel,
                                            const NamedDraft& draft) {
  const ModelRegistry registry = ModelRegistry::Builtin();
  const ModelConfig config = registry.ConfigOf(target);
  return NamingSource(target.directory().string(), [&] { return Build(registry, config, parallel, draft); });
}

CheckpointSource WithNamedDraft(CheckpointSource target, const std::string& draft) {
  if (!draft.empty() && draft != kOwnDraftLayers) target.secondary.push_back({kDraftPrefix, draft});
  return target;
}

}  // namespace layercast
