// DeepSeek-V2 and V3 (also Kimi-K2): latent attention, experts picked within the best groups of experts, and dense
// first layers. V2 picks experts by softmax scores, V3 by sigmoid scores plus a bias that does not enter their weights.
// Checkpoints of V3 also hold draft layers behind the last layer.
#include <nlohmann/json.hpp>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/families/corrected_sigmoid_experts.h"
#include "engine_side/model/families/draft_layers.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"
#include "layercast/model/latent_attention.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {
namespace {

// Makes the layers of a DeepSeek model. The result refers to `context`, `config` and `moe`, which must outlive it.
DecoderForCausalLM::MakeLayer LayersOf(const LayerContext& context, const ModelConfig& config, const MoeConfig& moe,
                                       const MoeOptions& options) {
  return [&context, &config, &moe, options, attention = LatentAttentionSpec::Parse(config)](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<LatentAttention>(context, config, attention),
                                          MakeFeedForward(context, config, moe, layer, options));
  };
}

std::unique_ptr<Module> BuildDeepseek(const char* architecture, const ModelConfig& config,
                                      const ParallelConfig& parallel, DType dtype, const MoeConfig& moe,
                                      const MoeOptions& options) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  auto model =
      std::make_unique<DecoderForCausalLM>(architecture, context, config, LayersOf(context, config, moe, options));
  model->SetMapper(DropDraftLayers(config, moe) | model->mapper());
  return model;
}

// Throws if the field is there and names something other than `expected`, which is all that the family computes.
void Expect(const ConfigFields& fields, const char* field, const char* expected) {
  if (fields.Text(field, expected) != expected) fields.Refuse(field, expected, *fields.Find(field));
}

// Also sets head_dim to the size of the part of a head that is rotated, since that is what rotary embeddings go by.
void CompleteLatent(nlohmann::json& config) {
  AddDefaults(config, {{"q_lora_rank", 1536},
                       {"kv_lora_rank", 512},
                       {"qk_nope_head_dim", 128},
                       {"qk_rope_head_dim", 64},
                       {"v_head_dim", 128}});
  config["head_dim"] = ConfigFields(config).Size("qk_rope_head_dim");
}

}  // namespace

std::unique_ptr<Module> BuildDeepseekV2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const ConfigFields fields = ConfigFields::Of(config);
  Expect(fields, "scoring_func", "softmax");
  MoeConfig moe = MoeConfig::Parse(config);
  if (fields.Text("topk_method", "greedy") == "greedy") {
    moe.n_group = moe.topk_group = 1;
  } else {
    Expect(fields, "topk_method", "group_limited_greedy");
  }
  const MoeOptions options{.routing = {.fp32_logits = true, .group_best = 1}, .shared_name = "shared_experts"};
  return BuildDeepseek("DeepseekV2ForCausalLM", config, parallel, dtype, moe, options);
}

std::unique_ptr<Module> BuildDeepseekV3(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const ConfigFields fields = ConfigFields::Of(config);
  Expect(fields, "scoring_func", "sigmoid");
  Expect(fields, "topk_method", "noaux_tc");
  const MoeConfig moe = MoeConfig::Parse(config);
  return BuildDeepseek("DeepseekV3ForCausalLM", config, parallel, dtype, moe, CorrectedSigmoidExperts(moe));
}

DraftModel DraftOfDeepseekV3(const ModelConfig& target, const ModelConfig& /*draft*/, const ParallelConfig& parallel,
                             DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const MoeConfig moe = MoeConfig::Parse(target);
  return MakeDraftLayers(context, target, moe, LayersOf(context, target, moe, CorrectedSigmoidExperts(moe)));
}

void CompleteDeepseekV2(nlohmann::json& config) {
  AddDefaults(config, {{"num_local_experts", 64}, {"moe_intermediate_size", 1407}, {"n_shared_experts", 2}});
  CompleteLatent(config);
}

void CompleteDeepseekV3(nlohmann::json& config) {
  AddDefaults(config, {{"num_local_experts", 256},
                       {"num_experts_per_tok", 8},
                       {"moe_intermediate_size", 2048},
                       {"n_shared_experts", 1},
                       {"n_group", 8},
                       {"topk_group", 4},
                       {"norm_topk_prob", true},
                       {"routed_scaling_factor", 2.5},
                       {"first_k_dense_replace", 3},
                       {"num_mtp_layers", 1},
                       {"max_position_embeddings", 4096}});
  CompleteLatent(config);
}

}  // namespace layercast
