#include "layercast/model/decoder.h"

#include <array>
#include <string_view>
#include <utility>

#include "engine_side/model/tree/group.h"
#include "layercast/model/embedding.h"
#include "layercast/model/norm.h"
#include "layercast/model/pipeline_stages.h"

namespace layercast {
namespace {

constexpr std::array<SkipRule, 4> kRulesOfDecoders = {
    {{"rotary_emb.inv_freq", "rotary_emb.inv_freq is computed, not loaded"},
     {"rotary_pos_emb.inv_freq", "rotary_pos_emb.inv_freq is computed, not loaded"},
     {"rotary_emb.cos_cached", "rotary_emb.cos_cached is computed, not loaded"},
     {"rotary_emb.sin_cached", "rotary_emb.sin_cached is computed, not loaded"}}};

// `make()` if this pipeline stage holds the module, else a stand-in that names the holder.
template <class Make>
std::unique_ptr<Module> HeldHere(bool here, const std::string& held_by, const Make& make) {
  if (!here) return std::make_unique<PPMissingLayer>(held_by);
  return make();
}

}  // namespace

DecoderLayer::DecoderLayer(const LayerContext& context, const ModelConfig& config)
    : Module("DecoderLayer"), context_(context), hidden_size_(config.hidden_size), epsilon_(config.rms_norm_eps) {}

DecoderLayer::DecoderLayer(const LayerContext& context, const ModelConfig& config, std::unique_ptr<Module> attention,
                           std::unique_ptr<Module> mlp)
    : DecoderLayer(context, config) {
  AddStep({"input_layernorm", "self_attn", {}}, std::move(attention));
  AddStep({"post_attention_layernorm", "mlp", {}}, std::move(mlp));
}

void DecoderLayer::AddStep(const ResidualStep& step, std::unique_ptr<Module> block) {
  AddNorm(step.norm);
  AddChild(step.block, std::move(block));
  if (!step.post_norm.empty()) AddNorm(step.post_norm);
  steps_.push_back(step);
}

void DecoderLayer::AddNorm(const std::string& name) {
  AddChild(name, std::make_unique<RMSNorm>(context_, hidden_size_, epsilon_));
}

DecoderForCausalLM::DecoderForCausalLM(std::string architecture, const LayerContext& context, const ModelConfig& config,
                                       const MakeLayer& make_layer, const DecoderOptions& options)
    : Module(std::move(architecture)),
      skip_rules_(kRulesOfDecoders.begin(), kRulesOfDecoders.end()),
      options_(options),
      dtype_(context.dtype),
      vocab_size_(config.vocab_size),
      hidden_size_(config.hidden_size),
      max_positions_(config.ContextLength()) {
  SetMapper(KvScaleNames());
  const PipelineStages stages(context.parallel, config.num_hidden_layers);
  auto layers = std::make_unique<Group>("Layers");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers->AddChild(std::to_string(i),
                     HeldHere(stages.HoldsLayer(i), StageName(stages.StageOf(i)), [&] { return make_layer(i); }));
  }
  const bool tied = config.tie_word_embeddings;
  const bool on_both = tied || context.parallel.pp_embeds_on_last;
  const std::string last = StageName(stages.last());
  auto model = std::make_unique<Group>("Decoder");
  model->AddChild("embed_tokens",
                  HeldHere(stages.is_first() || (on_both && stages.is_last()),
                           on_both ? "pipeline stages 0 and " + std::to_string(stages.last()) : StageName(0), [&] {
                             return std::make_unique<VocabParallelEmbedding>(context, config.vocab_size,
                                                                             config.hidden_size);
                           }));
  model->AddChild("layers", std::move(layers));
  model->AddChild("norm", HeldHere(stages.is_last(), last, [&] {
                    return std::make_unique<RMSNorm>(context, config.hidden_size, config.rms_norm_eps);
                  }));
  AddChild("model", std::move(model));
  if (tied) {
    AddChild("lm_head", std::make_unique<TiedLMHead>("model.embed_tokens"));
  } else {
    AddChild("lm_head", HeldHere(stages.is_last(), last, [&] {
               return std::make_unique<ParallelLMHead>(context, config.vocab_size, config.hidden_size, false);
             }));
  }
}

}  // namespace layercast
