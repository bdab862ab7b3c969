// GLM-4 MoE: a part of each head is rotated, the first layers are dense, and experts are picked by sigmoid scores plus
// a bias that does not enter their weights. Checkpoints also hold draft layers behind the last layer, which belong to
// another model.
#include <algorithm>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/families/corrected_sigmoid_experts.h"
#include "engine_side/model/families/draft_layers.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {
namespace {

MoeOptions ExpertsOfGlm(const MoeConfig& moe) {
  MoeOptions options = CorrectedSigmoidExperts(moe);
  options.router.fp32_weight = true;
  return options;
}

// Makes the layers of a GLM-4 model. The result refers to the arguments, which must outlive it. A draft layer attends
// as the decoder's last layer does.
DecoderForCausalLM::MakeLayer LayersOfGlm(const LayerContext& context, const ModelConfig& config,
                                          const MoeConfig& moe) {
  return [&](std::int64_t layer) {
    const AttentionOptions attention{.qkv_bias = config.attention_bias, .qk_norm = config.use_qk_norm};
    const std::int64_t like = std::min(layer, config.num_hidden_layers - 1);
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, like, attention),
                                          MakeFeedForward(context, config, moe, layer, ExpertsOfGlm(moe)));
  };
}

}  // namespace

std::unique_ptr<Module> BuildGlm4Moe(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const MoeConfig moe = MoeConfig::Parse(config);
  auto model =
      std::make_unique<DecoderForCausalLM>("Glm4MoeForCausalLM", context, config, LayersOfGlm(context, config, moe));
  model->SetMapper(DropDraftLayers(config, moe) | model->mapper());
  return model;
}

DraftModel DraftOfGlm4Moe(const ModelConfig& target, const ModelConfig& /*draft*/, const ParallelConfig& parallel,
                          DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const MoeConfig moe = MoeConfig::Parse(target);
  return MakeDraftLayers(context, target, moe, LayersOfGlm(context, target, moe));
}

void CompleteGlm4Moe(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 8},
                       {"rms_norm_eps", 1e-5},
                       {"max_position_embeddings", 131072},
                       {"partial_rotary_factor", 0.5},
                       {"num_local_experts", 128},
                       {"num_experts_per_tok", 8},
                       {"moe_intermediate_size", 1408},
                       {"n_shared_experts", 1},
                       {"norm_topk_prob", true},
                       {"first_k_dense_replace", 1},
                       {"num_mtp_layers", 1}});
}

}  // namespace layercast
