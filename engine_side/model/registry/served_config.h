// The configuration that a module tree was built from, to hold that of new weights against. Tensors may fit it whose
// own config.json differs: they would be computed with wrongly, and nobody would notice. Used by reloads, `layercast
// plan` and the engine's `verify`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/model/config/effective_fields.h"
#include "layercast/model/config.h"
#include "layercast/model/registry.h"

namespace layercast {

// A field whose effective values differ, as JSON. Value.
struct ConfigDifference {
  std::string field;     // "rope_theta", "layer_types[3]"
  std::string expected;  // by the configuration of the tree; "nothing" if it has no such field
  std::string got;
  bool operator==(const ConfigDifference&) const = default;
};

// "rope_theta: expected 1000000.0, got 10000.0"
std::string Sentence(const ConfigDifference& difference);

// Immutable value. Finding differences builds two trees on meta.
class ServedConfig {
 public:
  // The tree is of `target`. With `speculates`, it has a draft model's in it: that of `draft` or, if it is empty, of
  // the draft layers in the target's checkpoint.
  ServedConfig(ModelRegistry registry, ModelConfig target, bool speculates = false,
               std::optional<ModelConfig> draft = {});

  // What differs in a config.json, or its text, from the target's configuration. A text with neither `architectures`
  // nor `model_type` says some fields alone, and differs in none that it leaves out. Otherwise a field that is left out
  // has its family's default. Throws kInvalidArgument if no such model can be built from the text.
  std::vector<ConfigDifference> DifferencesFrom(std::string_view config_json) const;
  // Likewise, for the configuration of a draft model with a checkpoint of its own. None if the tree has no such model.
  std::vector<ConfigDifference> DraftDifferencesFrom(std::string_view config_json) const;

 private:
  EffectiveFields FieldsOf(ModelConfig target) const;
  EffectiveFields DraftFieldsOf(ModelConfig draft) const;

  ModelRegistry registry_;
  ModelConfig target_;
  bool speculates_;
  std::optional<ModelConfig> draft_;
};

}  // namespace layercast
