// Mixtral: experts in every layer, under `block_sparse_moe` with w1, w2, w3 on disk and under `mlp` in transformers.
#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

std::unique_ptr<Module> BuildMixtral(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const MoeConfig moe = MoeConfig::Parse(config);
  const MoeOptions options{.routing = {.normalize = true}, .experts = {.mixtral_names = true}, .other_name = "mlp"};
  return std::make_unique<DecoderForCausalLM>("MixtralForCausalLM", context, config, [&](std::int64_t index) {
    auto layer = std::make_unique<DecoderLayer>(context, config);
    layer->AddStep({"input_layernorm", "self_attn", {}},
                   std::make_unique<Attention>(context, config, index, AttentionOptions()));
    layer->AddStep({"post_attention_layernorm", "block_sparse_moe", {}},
                   std::make_unique<MixtureOfExperts>(context, config, moe, options));
    return layer;
  });
}

void CompleteMixtral(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 8},
                       {"max_position_embeddings", 131072},
                       {"rms_norm_eps", 1e-5},
                       {"rope_theta", 1e6},
                       {"use_sliding_window", true},
                       {"num_local_experts", 8},
                       {"num_experts_per_tok", 2}});
}

}  // namespace layercast
