// The draft model as the program's options name it. Used by `layercast plan` and by the ranks of `layercast serve`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "layercast/checkpoint_source.h"
#include "layercast/model/module.h"
#include "layercast/model_description.h"
#include "layercast/parallel.h"

namespace layercast {

inline constexpr const char* kOwnDraftLayers = "mtp";

// Value.
struct NamedDraft {
  // Empty for none, "mtp" for the layers that the target's checkpoint holds, or the folder of a draft model with a
  // config.json of its own, whose tensors come under names that begin with "draft.".
  std::string name{};
  std::optional<ModelDescription> folder{};  // what that folder says

  static NamedDraft Read(const std::string& name);
};

// Messages name the target's folder.
std::unique_ptr<Module> BuildWithNamedDraft(const ModelDescription& target, const ParallelConfig& parallel,
                                            const NamedDraft& draft);

// The target's checkpoint, and beside it the draft's, where that has a folder of its own.
CheckpointSource WithNamedDraft(CheckpointSource target, const std::string& draft);

}  // namespace layercast
