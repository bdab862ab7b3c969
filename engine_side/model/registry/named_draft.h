// The draft model that the program's options name. Used by `layercast plan` and by the ranks of `layercast serve`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "layercast/checkpoint_source.h"
#include "layercast/model_description.h"
#include "layercast/parallel.h"

namespace layercast {

class Module;

inline constexpr const char* kOwnDraftLayers = "mtp";

// Value.
struct NamedDraft {
  // Empty for no draft model; "mtp" for the draft layers in the target's own checkpoint; else the folder of a draft
  // model with its own config.json. The tensors of that folder get names that begin with "draft.".
  std::string name{};
  std::optional<ModelDescription> folder{};  // the description in that folder, if `name` is one

  static NamedDraft Read(const std::string& name);
};

// Builds the target's module tree, with the draft model's in it. Errors name the target's folder.
std::unique_ptr<Module> BuildWithNamedDraft(const ModelDescription& target, const ParallelConfig& parallel,
                                            const NamedDraft& draft);

// The target's checkpoint, joined by the draft's if the draft model has a folder of its own.
CheckpointSource WithNamedDraft(CheckpointSource target, const std::string& draft);

}  // namespace layercast
