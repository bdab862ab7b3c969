// What config.json's `quantization_config`, or ModelOpt's hf_quant_config.json, says about a checkpoint: which linear
// layers and experts are quantized, and in what form. Value. Used when a module tree is built.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/model/quantized_form.h"

namespace layercast {

class Module;

struct CheckpointQuantization {
  // Layers that share one form.
  struct Group {
    std::string said_by;               // "quantization_config.config_groups.group_0"
    std::vector<std::string> modules;  // see ListedModules
    std::vector<std::string> classes;  // "Linear" fits every layer; for layers that no group names
    std::optional<QuantizedForm> form{};
    std::string why_no_form{};
  };

  std::string method;                 // "fp8", "compressed-tensors", "mxfp4"; empty: not quantized
  std::optional<QuantizedForm> form;  // of all layers unless there are groups; nullopt: not known here
  std::vector<std::string> ignored;   // modules that stay in full precision: see ListedModules
  std::string why_no_form{};          // "quantization_config.bits: expected 8, got 4"
  std::string said_by{};              // "quantization_config"
  std::vector<Group> groups{};        // if there are any, a layer in none of them is not quantized

  // Throws kInvalidArgument, naming the field, if a field has an impossible value. A form that is merely not supported
  // does not throw: `form` is empty then, and `why_no_form` says why.
  static CheckpointQuantization Parse(std::string_view config_json);

  // Tells every linear layer and all experts below `root` whether checkpoints hold them quantized, and in what form.
  // The lists may use the checkpoint's names or the tree's. A fused layer has one precision, and so have the experts of
  // one module: throws kInvalidArgument where some parts are ignored and others are not, or where parts have different
  // forms.
  void ApplyTo(Module& root) const;
};

}  // namespace layercast
