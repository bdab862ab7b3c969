// What the families of decoder-only language models share. A family's file, or a host program's, puts a tree together
// from these. The tree also holds the constants that an engine computes with; the built-in engine needs nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/attention.h"
#include "layercast/model/config.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/mlp.h"
#include "layercast/model/module.h"

namespace layercast {

// One step of a layer, by the names of the layer's children: hidden += post_norm(block(norm(hidden))). Value.
struct ResidualStep {
  std::string norm;       // "input_layernorm"
  std::string block;      // "self_attn"
  std::string post_norm;  // empty: none
};

// One layer of a decoder: steps that are taken one after another. Resource, as every Module.
class LAYERCAST_PUBLIC DecoderLayer final : public Module {
 public:
  // Without steps: AddStep adds them.
  DecoderLayer(const LayerContext& context, const ModelConfig& config);
  // With the usual two steps: input_layernorm, self_attn; and post_attention_layernorm, mlp.
  DecoderLayer(const LayerContext& context, const ModelConfig& config, std::unique_ptr<Module> attention,
               std::unique_ptr<Module> mlp);
  void AddStep(const ResidualStep& step, std::unique_ptr<Module> block);
  std::span<const ResidualStep> steps() const { return steps_; }
  // Adds a child that belongs to no step, such as the parts that only a draft layer has.
  void AddPart(std::string name, std::unique_ptr<Module> part) { AddChild(std::move(name), std::move(part)); }

 private:
  void AddNorm(const std::string& name);

  LayerContext context_;
  std::int64_t hidden_size_;
  double epsilon_;
  std::vector<ResidualStep> steps_;
};

// What an engine computes around a decoder's layers. Value.
struct DecoderOptions {
  double embedding_scale = 1.0;  // multiplies embeddings, rounded to the model's dtype first
  double logit_softcap = 0.0;    // logits become cap * tanh(logit / cap); 0: none
  bool fp32_residual = false;    // the sums between blocks are not rounded to the model's dtype
};

// A whole decoder: model.embed_tokens, model.layers.{i}, model.norm and lm_head, tied if the configuration says so. In
// a pipeline it has what this stage holds of these. It skips checkpoints' tensors for rotary embeddings, which are
// computed. It knows the scales of a KV cache by any name (KvScaleNames); the attention layers' child "attn" takes
// them. Resource, as every Module.
class LAYERCAST_PUBLIC DecoderForCausalLM final : public Module {
 public:
  using MakeLayer = std::function<std::unique_ptr<DecoderLayer>(std::int64_t index)>;
  DecoderForCausalLM(std::string architecture, const LayerContext& context, const ModelConfig& config,
                     const MakeLayer& make_layer, const DecoderOptions& options = {});
  std::span<const SkipRule> skip_rules() const override { return skip_rules_; }
  // Adds the draft model that speculates for this one. It is served beside it, under kDraftRoot.
  void AddDraft(std::unique_ptr<Module> tree) { AddChild(kDraftRoot, std::move(tree)); }

  const DecoderOptions& options() const { return options_; }
  DType dtype() const { return dtype_; }
  std::int64_t vocab_size() const { return vocab_size_; }  // without padding
  std::int64_t hidden_size() const { return hidden_size_; }
  std::int64_t max_positions() const { return max_positions_; }  // of a sequence: ModelConfig::ContextLength

 private:
  std::vector<SkipRule> skip_rules_;
  DecoderOptions options_;
  DType dtype_;
  std::int64_t vocab_size_, hidden_size_, max_positions_;
};

}  // namespace layercast
