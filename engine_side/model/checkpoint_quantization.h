// What config.json's `quantization_config`, or ModelOpt's hf_quant_config.json, says of a checkpoint: which linear
// layers and experts are quantized, and in what form. Value. Used when a tree is built.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/model/module.h"
#include "layercast/model/quantized_form.h"

namespace layercast {

struct CheckpointQuantization {
  // Layers that have a form of their own.
  struct Group {
    std::string said_by;               // "quantization_config.config_groups.group_0"
    std::vector<std::string> modules;  // see ListedModules
    std::vector<std::string> classes;  // "Linear", which all are: of what no group lists by its name
    std::optional<QuantizedForm> form{};
    std::string why_no_form{};
  };

  std::string method;                 // "fp8", "compressed-tensors", "mxfp4"; empty: not quantized
  std::optional<QuantizedForm> form;  // of all layers, unless there are groups; empty: one that is not known here
  std::vector<std::string> ignored;   // modules that are left alone: see ListedModules
  std::string why_no_form{};          // "quantization_config.bits: expected 8, got 4"
  std::string said_by{};              // "quantization_config"
  std::vector<Group> groups{};        // where there are some, what is in none of them is left alone

  // Throws kInvalidArgument naming the field that cannot be.
  static CheckpointQuantization Parse(std::string_view config_json);

  // Tells every linear layer and all experts below `root` whether they are quantized, and in what form checkpoints may
  // hold them. A fused layer is one of its parts, and experts are each of them: throws kInvalidArgument where some are
  // ignored and others are not, or where they have several forms. What is listed may be called as the checkpoint calls
  // it, or as the tree does.
  void ApplyTo(Module& root) const;
};

}  // namespace layercast
