#include "layercast/model/decoder.h"

#include <utility>

#include "engine_side/model/fit.h"
#include "layercast/model/embedding.h"
#include "layercast/model/norm.h"

namespace layercast {
namespace {

// A module that is nothing but its children.
class Group final : public Module {
 public:
  using Module::AddChild;
  using Module::Module;
};

}  // namespace

Attention::Attention(const LayerContext& context, const ModelConfig& config, const AttentionOptions& options)
    : Module("Attention") {
  const AttentionHeads heads{config.num_attention_heads, config.num_key_value_heads, config.head_dim, 0};
  AddChild("qkv_proj", std::make_unique<QKVParallelLinear>(context, config.hidden_size, heads, options.qkv_bias));
  AddChild("o_proj", std::make_unique<RowParallelLinear>(context, heads.num_heads * heads.head_dim, config.hidden_size,
                                                         options.output_bias));
  if (!options.qk_norm) return;
  AddChild("q_norm", std::make_unique<RMSNorm>(context, config.head_dim));
  AddChild("k_norm", std::make_unique<RMSNorm>(context, config.head_dim));
}

GatedMlp::GatedMlp(const LayerContext& context, const ModelConfig& config, bool bias) : Module("GatedMlp") {
  const std::int64_t size = config.intermediate_size;
  Divide("intermediate_size", size, "tp_size", context.parallel.tp_size);  // by the name that the user knows
  const std::vector<MergedShard> shards = {{"gate_proj", size}, {"up_proj", size}};
  AddChild("gate_up_proj", std::make_unique<MergedColumnParallelLinear>(context, config.hidden_size, shards, bias));
  AddChild("down_proj", std::make_unique<RowParallelLinear>(context, size, config.hidden_size, bias));
}

DecoderLayer::DecoderLayer(const LayerContext& context, const ModelConfig& config, std::unique_ptr<Module> attention,
                           std::unique_ptr<Module> mlp)
    : Module("DecoderLayer") {
  AddChild("input_layernorm", std::make_unique<RMSNorm>(context, config.hidden_size));
  AddChild("self_attn", std::move(attention));
  AddChild("post_attention_layernorm", std::make_unique<RMSNorm>(context, config.hidden_size));
  AddChild("mlp", std::move(mlp));
}

DecoderForCausalLM::DecoderForCausalLM(std::string architecture, const LayerContext& context, const ModelConfig& config,
                                       const MakeLayer& make_layer)
    : Module(std::move(architecture)),
      skip_rules_{{"rotary_emb.inv_freq", "rotary_emb.inv_freq is computed, not loaded"},
                  {"rotary_pos_emb.inv_freq", "rotary_pos_emb.inv_freq is computed, not loaded"},
                  {"rotary_emb.cos_cached", "rotary_emb.cos_cached is computed, not loaded"},
                  {"rotary_emb.sin_cached", "rotary_emb.sin_cached is computed, not loaded"}} {
  auto layers = std::make_unique<Group>("Layers");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) layers->AddChild(std::to_string(i), make_layer(i));
  auto model = std::make_unique<Group>("Decoder");
  model->AddChild("embed_tokens",
                  std::make_unique<VocabParallelEmbedding>(context, config.vocab_size, config.hidden_size));
  model->AddChild("layers", std::move(layers));
  model->AddChild("norm", std::make_unique<RMSNorm>(context, config.hidden_size));
  AddChild("model", std::move(model));
  if (config.tie_word_embeddings) {
    AddChild("lm_head", std::make_unique<TiedLMHead>("model.embed_tokens"));
  } else {
    AddChild("lm_head", std::make_unique<ParallelLMHead>(context, config.vocab_size, config.hidden_size, false));
  }
}

}  // namespace layercast
