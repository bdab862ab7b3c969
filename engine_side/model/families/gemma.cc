// Gemma 2 and 3 (text). Norms multiply by one plus their weight and stand before and after each block; embeddings are
// scaled; layers with a sliding window alternate with layers of full attention. Gemma 2 caps scores and logits, Gemma 3
// normalizes queries and keys.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"

namespace layercast {
namespace {

std::unique_ptr<DecoderForCausalLM> BuildGemma(const char* architecture, const ModelConfig& config,
                                               const ParallelConfig& parallel, DType dtype, bool qk_norm) {
  const LayerContext context{.parallel = parallel, .dtype = dtype, .norm = NormStyle::kOnePlusWeight};
  AttentionOptions attention{
      .qkv_bias = config.attention_bias, .output_bias = config.attention_bias, .qk_norm = qk_norm};
  if (config.query_pre_attn_scalar) attention.scale = 1.0 / std::sqrt(*config.query_pre_attn_scalar);
  attention.logit_softcap = config.attn_logit_softcapping;
  const DecoderOptions options{.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size)),
                               .logit_softcap = config.final_logit_softcapping.value_or(0.0)};
  const auto make_layer = [&](std::int64_t index) {
    auto layer = std::make_unique<DecoderLayer>(context, config);
    layer->AddStep({"input_layernorm", "self_attn", "post_attention_layernorm"},
                   std::make_unique<Attention>(context, config, index, attention));
    layer->AddStep({"pre_feedforward_layernorm", "mlp", "post_feedforward_layernorm"},
                   std::make_unique<GatedMlp>(context, config, false));
    return layer;
  };
  return std::make_unique<DecoderForCausalLM>(architecture, context, config, make_layer, options);
}

void CompleteBoth(nlohmann::json& config) {
  AddDefaults(config, {{"head_dim", 256},
                       {"num_key_value_heads", 4},
                       {"hidden_activation", "gelu_pytorch_tanh"},
                       {"tie_word_embeddings", true},
                       {"query_pre_attn_scalar", 256},
                       {"use_sliding_window", true},
                       {"sliding_window", 4096}});
}

}  // namespace

std::unique_ptr<Module> BuildGemma2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  return BuildGemma("Gemma2ForCausalLM", config, parallel, dtype, false);
}

std::unique_ptr<Module> BuildGemma3(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  return BuildGemma("Gemma3ForCausalLM", config, parallel, dtype, true);
}

// The language model of a vision-language model, whose tensors have old and new names.
std::unique_ptr<Module> BuildGemma3Text(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  auto model = BuildGemma("Gemma3ForConditionalGeneration", config, parallel, dtype, true);
  constexpr auto kPrefix = NameRule::Match::kPrefix;
  std::vector<NameRule> rules;
  for (const std::string tower : {"vision_tower", "multi_modal_projector"}) {
    rules.push_back(NameRule::Drop(kPrefix, tower, "the vision tower is not served"));
    rules.push_back(NameRule::Drop(kPrefix, "model." + tower, "the vision tower is not served"));
  }
  rules.push_back(NameRule::Prefix("model.language_model", "model"));
  rules.push_back(NameRule::Prefix("language_model.model", "model"));
  rules.push_back(NameRule::Prefix("language_model.lm_head", "lm_head"));
  model->SetMapper(WeightsMapper(std::move(rules)) | model->mapper());
  return model;
}

void CompleteGemma2(nlohmann::json& config) {
  AddDefaults(config, {{"sliding_window_pattern", 2},
                       {"attn_logit_softcapping", 50.0},
                       {"final_logit_softcapping", 30.0},
                       {"max_position_embeddings", 8192}});
  CompleteBoth(config);
}

namespace {

// Merges `rope_scaling` into the parameters of full attention and keeps everything else in a newer file's
// `rope_parameters`, as Gemma 3's configuration class does. In other classes `rope_scaling` replaces `rope_parameters`.
void MergeRopeScaling(nlohmann::json& config) {
  const auto scaling = config.find("rope_scaling");
  const auto ropes = config.find("rope_parameters");
  if (scaling == config.end() || !scaling->is_object() || ropes == config.end() || !ropes->is_object()) return;
  const auto full = ropes->find("full_attention");
  if (full == ropes->end() || !full->is_object()) return;
  full->update(*scaling);
  config.erase(scaling);
}

}  // namespace

// Sizes have defaults too: published vision-language models leave out of text_config what their class has by default.
void CompleteGemma3(nlohmann::json& config) {
  AddDefaults(config, {{"vocab_size", 262208},
                       {"hidden_size", 2304},
                       {"intermediate_size", 9216},
                       {"num_hidden_layers", 26},
                       {"num_attention_heads", 8},
                       {"max_position_embeddings", 131072},
                       {"sliding_window_pattern", 6},
                       {"rope_theta", 1e6},
                       {"rope_local_base_freq", 1e4}});
  MergeRopeScaling(config);
  CompleteBoth(config);
}

}  // namespace layercast
