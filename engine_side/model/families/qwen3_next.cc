// Qwen3-Next and Qwen3.5 (text). Most layers are gated delta nets; every so many layers there is attention with gated
// outputs. Norms multiply by one plus their weight. Each layer has an MLP, or experts beside a shared one that is
// weighted token by token. Checkpoints also hold a draft model and, if they are of a vision-language model, its vision
// tower.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/families/draft_layers.h"
#include "engine_side/model/families/families.h"
#include "engine_side/model/tree/fit.h"
#include "engine_side/model/tree/group.h"
#include "layercast/model/decoder.h"
#include "layercast/model/gated_delta_net.h"
#include "layercast/model/linear.h"
#include "layercast/model/mixture_of_experts.h"
#include "layercast/model/norm.h"

namespace layercast {
namespace {

DeltaNetSizes SizesOf(const ModelConfig& config) {
  const ConfigFields fields = ConfigFields::Of(config);
  constexpr std::int64_t kMost = 65536;  // products stay far below 2^63
  return {.num_key_heads = fields.Size("linear_num_key_heads", 16, kMost),
          .num_value_heads = fields.Size("linear_num_value_heads", 32, kMost),
          .key_head_dim = fields.Size("linear_key_head_dim", 128, kMost),
          .value_head_dim = fields.Size("linear_value_head_dim", 128, kMost),
          .conv_kernel = fields.Size("linear_conv_kernel_dim", 4)};
}

LayerContext ContextOf(const ParallelConfig& parallel, DType dtype) {
  return {.parallel = parallel, .dtype = dtype, .norm = NormStyle::kOnePlusWeight};
}

WeightsMapper TextNames() {
  return WeightsMapper({DropDraft("mtp"),
                        NameRule::Drop(NameRule::Match::kPrefix, "model.visual", "the vision tower is not served"),
                        NameRule::Prefix("model.language_model", "model")});
}

AttentionOptions GatedAttention(const ModelConfig& config) {
  return {
      .qkv_bias = config.attention_bias, .output_bias = config.attention_bias, .qk_norm = true, .output_gate = true};
}

// `moe` describes the layers with experts; nullopt if the model has none.
std::unique_ptr<Module> FeedForward(const LayerContext& context, const ModelConfig& config,
                                    const std::optional<MoeConfig>& moe, std::int64_t index) {
  if (!moe) return std::make_unique<GatedMlp>(context, config, false);
  const MoeOptions options{.routing = {.normalize = moe->norm_topk_prob, .round_weights = true},
                           .shared_name = "shared_expert",
                           .shared_gate = true};
  return MakeFeedForward(context, config, *moe, index, options);
}

std::unique_ptr<Module> BuildHybrid(const char* architecture, const ModelConfig& config, const ParallelConfig& parallel,
                                    DType dtype, DeltaNetRows rows, const std::optional<MoeConfig>& moe) {
  const LayerContext context = ContextOf(parallel, dtype);
  const DeltaNetSizes sizes = SizesOf(config);
  const DeltaNetOptions delta{.rows = rows, .norm_epsilon = config.rms_norm_eps, .hidden_act = config.hidden_act};
  const auto make_layer = [&](std::int64_t index) {
    auto layer = std::make_unique<DecoderLayer>(context, config);
    if (config.layer_types.at(static_cast<std::size_t>(index)) == "linear_attention") {
      layer->AddStep({"input_layernorm", "linear_attn", {}},
                     std::make_unique<GatedDeltaNet>(context, sizes, config.hidden_size, delta));
    } else {
      layer->AddStep({"input_layernorm", "self_attn", {}},
                     std::make_unique<Attention>(context, config, index, GatedAttention(config)));
    }
    layer->AddStep({"post_attention_layernorm", "mlp", {}}, FeedForward(context, config, moe, index));
    return layer;
  };
  auto model = std::make_unique<DecoderForCausalLM>(architecture, context, config, make_layer);
  model->SetMapper(TextNames() | model->mapper());
  return model;
}

// The draft model that checkpoints call `mtp`: layers with full attention, whose input `fc` computes from an embedding
// and a hidden state.
DraftModel DraftOfHybrid(const ModelConfig& config, const ParallelConfig& parallel, DType dtype,
                         const std::optional<MoeConfig>& moe) {
  const LayerContext context = ContextOf(parallel, dtype);
  const ConfigFields fields = ConfigFields::Of(config);
  const std::int64_t layers = fields.Size("mtp_num_hidden_layers", fields.Size("num_nextn_predict_layers", 1));
  const auto attends = std::ranges::find(config.layer_types, "full_attention");
  if (attends == config.layer_types.end() || layers > config.num_hidden_layers) {
    ConfigFields::Refuse("a draft model of " + std::to_string(layers) +
                         " layers: expected at most as many as num_hidden_layers " +
                         std::to_string(config.num_hidden_layers) + ", and full_attention among layer_types");
  }
  auto stack = std::make_unique<Group>("Layers");
  for (std::int64_t i = 0; i < layers; ++i) {
    stack->AddChild(
        std::to_string(i),
        std::make_unique<DecoderLayer>(
            context, config,
            std::make_unique<Attention>(context, config, attends - config.layer_types.begin(), GatedAttention(config)),
            FeedForward(context, config, moe, i)));
  }
  const std::int64_t size = config.hidden_size;
  Divide("hidden_size", size, "tp_size", parallel.tp_size);  // for fc, in the name that the user knows
  auto tree = std::make_unique<Group>("DraftLayers");
  tree->AddChild("fc", std::make_unique<ColumnParallelLinear>(context, 2 * size, size, false));
  tree->AddChild("layers", std::move(stack));
  for (const char* norm : {"norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"}) {
    tree->AddChild(norm, std::make_unique<RMSNorm>(context, size, config.rms_norm_eps));
  }
  tree->AddChild("embed_tokens", SharedEmbedding());
  return {std::move(tree), WeightsMapper({NameRule::Prefix("mtp", kDraftRoot)})};
}

void CompleteHybrid(nlohmann::json& config) {
  AddDefaults(config, {{"head_dim", 256},
                       {"partial_rotary_factor", 0.25},
                       {"full_attention_interval", 4},
                       {"max_position_embeddings", 32768}});
}

void CompleteExperts(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 2},
                       {"moe_intermediate_size", 512},
                       {"shared_expert_intermediate_size", 512},
                       {"norm_topk_prob", true}});
  CompleteHybrid(config);
}

}  // namespace

std::unique_ptr<Module> BuildQwen3Next(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  return BuildHybrid("Qwen3NextForCausalLM", config, parallel, dtype, DeltaNetRows::kByKeyHead,
                     MoeConfig::Parse(config));
}

std::unique_ptr<Module> BuildQwen35(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  return BuildHybrid("Qwen3_5ForCausalLM", config, parallel, dtype, DeltaNetRows::kByPart, std::nullopt);
}

std::unique_ptr<Module> BuildQwen35Moe(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  return BuildHybrid("Qwen3_5MoeForCausalLM", config, parallel, dtype, DeltaNetRows::kByPart, MoeConfig::Parse(config));
}

DraftModel DraftOfQwen3Next(const ModelConfig& target, const ModelConfig& /*draft*/, const ParallelConfig& parallel,
                            DType dtype) {
  return DraftOfHybrid(target, parallel, dtype, MoeConfig::Parse(target));
}

DraftModel DraftOfQwen35(const ModelConfig& target, const ModelConfig& /*draft*/, const ParallelConfig& parallel,
                         DType dtype) {
  return DraftOfHybrid(target, parallel, dtype, std::nullopt);
}

void CompleteQwen3Next(nlohmann::json& config) {
  AddDefaults(config, {{"num_local_experts", 512}, {"num_experts_per_tok", 10}});
  CompleteExperts(config);
}

// Sizes have defaults too: a vision-language model may leave out of text_config what its class has by default.
void CompleteQwen35(nlohmann::json& config) {
  AddDefaults(config, {{"vocab_size", 248320},
                       {"hidden_size", 4096},
                       {"intermediate_size", 12288},
                       {"num_hidden_layers", 32},
                       {"num_attention_heads", 16},
                       {"num_key_value_heads", 4}});
  CompleteHybrid(config);
}

void CompleteQwen35Moe(nlohmann::json& config) {
  AddDefaults(config, {{"vocab_size", 248320},
                       {"hidden_size", 2048},
                       {"num_hidden_layers", 40},
                       {"num_attention_heads", 16},
                       {"num_local_experts", 256},
                       {"num_experts_per_tok", 8}});
  CompleteExperts(config);
  AddDefaults(config, {{"intermediate_size", config["moe_intermediate_size"]}});  // every layer has experts
}

}  // namespace layercast
