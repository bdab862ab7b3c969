// The built-in families and their configuration classes. Used by ModelRegistry::Builtin and by CompleteConfig.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "layercast/model/config.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"

namespace layercast {

using BuildFamily = std::unique_ptr<Module>(const ModelConfig& config, const ParallelConfig& parallel, DType dtype);
using BuildDraft = DraftModel(const ModelConfig& target, const ModelConfig& draft, const ParallelConfig& parallel,
                              DType dtype);
using CompleteFamily = void(nlohmann::json& config);

// What is built for an architecture, and the configuration class that transformers has for it. Immutable value.
struct BuiltinFamily {
  std::string_view model_type;
  std::string_view architecture;
  BuildFamily* build;
  CompleteFamily* complete;            // adds the defaults of the configuration class
  std::string_view limits = "";        // what the family leaves out, in words
  BuildDraft* draft_layers = nullptr;  // for draft layers in the target's own checkpoint
};

// A draft model with a checkpoint of its own. Immutable value.
struct BuiltinDraftModel {
  std::string_view architecture;
  BuildDraft* build;
};

std::span<const BuiltinFamily> BuiltinFamilies();
std::span<const BuiltinDraftModel> BuiltinDraftModels();

}  // namespace layercast
