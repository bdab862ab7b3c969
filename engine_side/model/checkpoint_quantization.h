// What config.json's `quantization_config` says of a checkpoint: which linear layers and experts are quantized, and in
// what form. Value. Used when a tree is built.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/model/module.h"
#include "layercast/model/quantized_form.h"

namespace layercast {

struct CheckpointQuantization {
  std::string method;                 // "fp8", "compressed-tensors", "modelopt"; empty: not quantized
  std::optional<QuantizedForm> form;  // empty: a form that is not known here
  // Modules that are left alone: whole path segments ("lm_head", "model.layers.0.mlp"), a pattern with '*' that
  // one is or lies below, or, after "re:", a regular expression that matches from the beginning.
  std::vector<std::string> ignored;

  // Throws kInvalidArgument naming the field that cannot be.
  static CheckpointQuantization Parse(std::string_view config_json);

  bool Ignores(std::string_view path) const;
  // Tells every linear layer below `root` whether it is quantized, and in what form checkpoints may hold it. A fused
  // layer is one of its parts: throws kInvalidArgument where some of them are ignored and others are not. What is
  // ignored may be called as the checkpoint calls it, or as the tree does.
  void ApplyTo(Module& root) const;
};

}  // namespace layercast
