// GPT-OSS: attention has sinks, and a sliding window in every other layer. Experts have biases and a gate function of
// their own. On disk they are stacked and transposed, with the columns of gate and up alternating.
#include <nlohmann/json.hpp>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

std::unique_ptr<Module> BuildGptOss(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype, .norm = NormStyle::kFp32Weight};
  const ConfigFields fields = ConfigFields::Of(config);
  const MoeConfig moe = MoeConfig::Parse(config);
  const AttentionOptions attention{
      .qkv_bias = config.attention_bias, .output_bias = config.attention_bias, .sinks = true};
  const ClampedGate gate{fields.Number("swiglu_alpha", 1.702), fields.Number("swiglu_limit", 7.0)};
  // A softmax over the picked experts equals the softmax over all of them, normalized over the picked ones.
  const MoeOptions options{.routing = {.normalize = true, .round_weights = true},
                           .router = {.bias = true},
                           .router_name = "router",
                           .experts = {.bias = true, .transposed = true, .interleaved = true},
                           .clamped_gate = gate};
  return std::make_unique<DecoderForCausalLM>("GptOssForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, attention),
                                          std::make_unique<MixtureOfExperts>(context, config, moe, options));
  });
}

void CompleteGptOss(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 8},
                       {"head_dim", 64},
                       {"rms_norm_eps", 1e-5},
                       {"attention_bias", true},
                       {"use_sliding_window", true},
                       {"sliding_window", 128},
                       {"sliding_window_pattern", 2},
                       {"max_position_embeddings", 131072},
                       {"rope_theta", 150000.0},
                       {"num_local_experts", 128},
                       {"num_experts_per_tok", 4}});
  if (ConfigFields(config).Find("rope_parameters") != nullptr) return;
  config["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                               {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
}

}  // namespace layercast
