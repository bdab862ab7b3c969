// The blocks that decoder-only families share. A family's file puts them together; a host program's may too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/config.h"
#include "layercast/model/linear.h"
#include "layercast/model/module.h"

namespace layercast {

struct AttentionOptions {
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;  // q_norm, k_norm over head_dim
};

// qkv_proj, o_proj and, where asked for, q_norm, k_norm.
class LAYERCAST_PUBLIC Attention final : public Module {
 public:
  Attention(const LayerContext& context, const ModelConfig& config, const AttentionOptions& options);
};

// gate_up_proj, down_proj.
class LAYERCAST_PUBLIC GatedMlp final : public Module {
 public:
  GatedMlp(const LayerContext& context, const ModelConfig& config, bool bias);
};

// input_layernorm, self_attn, post_attention_layernorm, mlp.
class LAYERCAST_PUBLIC DecoderLayer final : public Module {
 public:
  DecoderLayer(const LayerContext& context, const ModelConfig& config, std::unique_ptr<Module> attention,
               std::unique_ptr<Module> mlp);
};

// model.embed_tokens, model.layers.{i}, model.norm and lm_head, tied if the configuration says so. Skips what
// checkpoints hold of rotary embeddings, which are computed.
class LAYERCAST_PUBLIC DecoderForCausalLM final : public Module {
 public:
  using MakeLayer = std::function<std::unique_ptr<Module>(std::int64_t index)>;
  DecoderForCausalLM(std::string architecture, const LayerContext& context, const ModelConfig& config,
                     const MakeLayer& make_layer);
  std::span<const SkipRule> skip_rules() const override { return skip_rules_; }

 private:
  std::vector<SkipRule> skip_rules_;
};

}  // namespace layercast
