// The dense feed-forward part of a decoder layer. Used by model families. The classes are Modules, and so resources.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/export.h"
#include "layercast/model/config.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/module.h"

namespace layercast {

// gate_up_proj, down_proj: down(act(gate(x)) * up(x)).
class LAYERCAST_PUBLIC GatedMlp final : public Module {
 public:
  // `intermediate_size` replaces the configuration's, for a shared expert. `size_field` is what errors call it.
  GatedMlp(const LayerContext& context, const ModelConfig& config, bool bias,
           std::optional<std::int64_t> intermediate_size = std::nullopt,
           std::string_view size_field = "intermediate_size");
  const std::string& hidden_act() const { return hidden_act_; }  // "silu"

 private:
  std::string hidden_act_;
};

// up_proj, down_proj: down(act(up(x))).
class LAYERCAST_PUBLIC Mlp final : public Module {
 public:
  // `intermediate_size` and `size_field` are as for GatedMlp.
  Mlp(const LayerContext& context, const ModelConfig& config, bool bias,
      std::optional<std::int64_t> intermediate_size = std::nullopt, std::string_view size_field = "intermediate_size");
  const std::string& hidden_act() const { return hidden_act_; }  // "relu2"

 private:
  std::string hidden_act_;
};

}  // namespace layercast
