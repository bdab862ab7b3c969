// A hand-made decoder of one layer: every kind of layer once. What plan tests plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layercast/model/embedding.h"
#include "layercast/model/linear.h"
#include "layercast/model/norm.h"
#include "tests/support/test_weights.h"
#include "tests/support/tree.h"

namespace layercast::testing {

struct TinyOptions {
  int tp_rank = 0;
  int tp_size = 1;
  bool tied = false;
  DType dtype = DType::kF32;
  std::int64_t layers = 1;
};

inline std::unique_ptr<Module> TinyLayer(const LayerContext& context) {
  auto attention = std::make_unique<Tree>("Attention");
  attention->Add("qkv_proj", std::make_unique<QKVParallelLinear>(context, 16, AttentionHeads{8, 2, 4, 0}, true));
  attention->Add("o_proj", std::make_unique<RowParallelLinear>(context, 32, 16, false));
  auto mlp = std::make_unique<Tree>("Mlp");
  mlp->Add("gate_up_proj", std::make_unique<MergedColumnParallelLinear>(
                               context, 16, std::vector<MergedShard>{{"gate_proj", 24}, {"up_proj", 24}}, false));
  mlp->Add("down_proj", std::make_unique<RowParallelLinear>(context, 24, 16, false));
  auto layer = std::make_unique<Tree>("Layer");
  layer->Add("input_layernorm", std::make_unique<RMSNorm>(context, 16));
  layer->Add("self_attn", std::move(attention));
  layer->Add("mlp", std::move(mlp));
  return layer;
}

inline std::unique_ptr<Tree> TinyModel(const TinyOptions& options) {
  class Root final : public Tree {
   public:
    Root() : Tree("TinyForCausalLM") {}
    std::span<const SkipRule> skip_rules() const override { return rules_; }

   private:
    const std::vector<SkipRule> rules_ = {{"rotary_emb.inv_freq", "rotary_emb.inv_freq is computed, not loaded"}};
  };
  const LayerContext context{{options.tp_rank, options.tp_size}, options.dtype, true};
  auto layers = std::make_unique<Tree>("Layers");
  for (std::int64_t i = 0; i < options.layers; ++i) layers->Add(std::to_string(i), TinyLayer(context));
  auto model = std::make_unique<Tree>("Model");
  model->Add("embed_tokens", std::make_unique<VocabParallelEmbedding>(context, 100, 16));
  model->Add("layers", std::move(layers));
  model->Add("norm", std::make_unique<RMSNorm>(context, 16));
  auto root = std::make_unique<Root>();
  root->Add("model", std::move(model));
  if (options.tied) {
    root->Add("lm_head", std::make_unique<TiedLMHead>("model.embed_tokens"));
  } else {
    root->Add("lm_head", std::make_unique<ParallelLMHead>(context, 100, 16, false));
  }
  return root;
}

// The checkpoint of a TinyModel.
inline std::vector<TensorSpec> TinySpecs(const TinyOptions& options) {
  std::vector<TensorSpec> specs = {{"model.embed_tokens.weight", options.dtype, {100, 16}}};
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string path = "model.layers." + std::to_string(i) + ".";
    const auto add = [&](const char* name, Shape shape) {
      specs.push_back({path + name, options.dtype, std::move(shape)});
    };
    add("input_layernorm.weight", {16});
    add("self_attn.q_proj.weight", {32, 16});
    add("self_attn.q_proj.bias", {32});
    add("self_attn.k_proj.weight", {8, 16});
    add("self_attn.k_proj.bias", {8});
    add("self_attn.v_proj.weight", {8, 16});
    add("self_attn.v_proj.bias", {8});
    add("self_attn.o_proj.weight", {16, 32});
    add("mlp.gate_proj.weight", {24, 16});
    add("mlp.up_proj.weight", {24, 16});
    add("mlp.down_proj.weight", {16, 24});
  }
  specs.push_back({"model.norm.weight", options.dtype, {16}});
  if (!options.tied) specs.push_back({"lm_head.weight", options.dtype, {100, 16}});
  return specs;
}

inline Weights TinyWeights(const TinyOptions& options) {
  Weights weights;
  for (const TensorSpec& spec : TinySpecs(options)) weights.AddRandom(spec, static_cast<std::uint32_t>(weights.size()));
  return weights;
}

}  // namespace layercast::testing
