// MiniMax-M2: queries and keys are normalized over all heads together, and a part of each head is rotated. Experts have
// Mixtral's names and are picked by sigmoid scores plus a bias that does not enter their weights.
#include <cstdint>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

std::unique_ptr<Module> BuildMiniMaxM2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const MoeConfig moe = MoeConfig::Parse(config);
  const AttentionOptions attention{.qk_norm_over_heads = true};
  const MoeOptions options{.routing = {.score = Routing::Score::kSigmoid, .normalize = true, .fp32_logits = true},
                           .router = {.fp32_weight = true, .correction_bias = true},
                           .experts = {.mixtral_names = true},
                           .other_name = "mlp"};
  auto model = std::make_unique<DecoderForCausalLM>("MiniMaxM2ForCausalLM", context, config, [&](std::int64_t index) {
    auto layer = std::make_unique<DecoderLayer>(context, config);
    layer->AddStep({"input_layernorm", "self_attn", {}},
                   std::make_unique<Attention>(context, config, index, attention));
    layer->AddStep({"post_attention_layernorm", "block_sparse_moe", {}},
                   std::make_unique<MixtureOfExperts>(context, config, moe, options));
    return layer;
  });
  // Checkpoints hold the bias beside the router, not in it.
  const NameRule bias = NameRule::Suffix("e_score_correction_bias", "gate.e_score_correction_bias");
  model->SetMapper(WeightsMapper({bias}) | model->mapper());
  return model;
}

void CompleteMiniMaxM2(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 8},
                       {"head_dim", 128},
                       {"rope_theta", 5e6},
                       {"max_position_embeddings", 196608},
                       {"num_local_experts", 256},
                       {"num_experts_per_tok", 8}});
  // Published files give the number of rotated elements of a head (rotary_dim) instead of the factor.
  const ConfigFields fields(config);
  const std::int64_t head = fields.Size("head_dim");
  if (const auto rotary = fields.Integer("rotary_dim", 1, head)) {
    config.emplace("partial_rotary_factor", static_cast<double>(*rotary) / static_cast<double>(head));
  }
}

}  // namespace layercast
