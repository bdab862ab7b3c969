// The draft model as the program's options name it. Used by `layercast plan` and by the ranks of `layercast serve`.
#pragma once

#include <memory>
#include <string>

#include "layercast/checkpoint_source.h"
#include "layercast/model/config.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"

namespace layercast {

inline constexpr const char* kOwnDraftLayers = "mtp";

// `draft`: empty for none, "mtp" for the layers that the target's checkpoint holds, or the folder of a draft model with
// a config.json of its own, whose tensors come under names that begin with "draft.".
std::unique_ptr<Module> BuildWithNamedDraft(const ModelConfig& target, const ParallelConfig& parallel,
                                            const std::string& draft);

// The target's checkpoint, and beside it the draft's, where that has a folder of its own.
CheckpointSource WithNamedDraft(CheckpointSource target, const std::string& draft);

}  // namespace layercast
