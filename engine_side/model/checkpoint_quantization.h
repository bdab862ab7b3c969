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
  std::string method;                 // "fp8", "compressed-tensors", "mxfp4"; empty: not quantized
  std::optional<QuantizedForm> form;  // empty: a form that is not known here
  std::vector<std::string> ignored;   // modules that are left alone: see IgnoredModules
  std::string why_no_form{};          // "quantization_config.bits: expected 8, got 4"
  std::string said_by{};              // "quantization_config"

  // Throws kInvalidArgument naming the field that cannot be.
  static CheckpointQuantization Parse(std::string_view config_json);

  // Tells every linear layer and all experts below `root` whether they are quantized, and in what form checkpoints may
  // hold them. A fused layer is one of its parts, and experts are each of them: throws kInvalidArgument where some are
  // ignored and others are not. What is ignored may be called as the checkpoint calls it, or as the tree does.
  void ApplyTo(Module& root) const;
};

}  // namespace layercast
