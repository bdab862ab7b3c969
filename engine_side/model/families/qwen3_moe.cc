// Qwen3-MoE: Qwen3's attention, and experts in every layer except those that the configuration makes dense.
#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

std::unique_ptr<Module> BuildQwen3Moe(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const MoeConfig moe = MoeConfig::Parse(config);
  const AttentionOptions attention{
      .qkv_bias = config.attention_bias, .output_bias = config.attention_bias, .qk_norm = true};
  const MoeOptions options{.routing = {.normalize = moe.norm_topk_prob, .round_weights = true}};
  return std::make_unique<DecoderForCausalLM>("Qwen3MoeForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, attention),
                                          MakeFeedForward(context, config, moe, layer, options));
  });
}

void CompleteQwen3Moe(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 4},
                       {"max_position_embeddings", 32768},
                       {"use_sliding_window", false},
                       {"sliding_window", 4096},
                       {"num_local_experts", 128},
                       {"num_experts_per_tok", 8},
                       {"moe_intermediate_size", 768}});
  // Published files have this field, but transformers does not read it: every layer has the sliding window.
  config["max_window_layers"] = 0;
}

}  // namespace layercast
