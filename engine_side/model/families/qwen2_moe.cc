// Qwen2-MoE: Qwen2's attention, and a shared expert whose output is weighted by a gate, token by token.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {
namespace {

// Unlike in Qwen2, every other one of the first max_window_layers layers has the sliding window.
void ListWindows(nlohmann::json& config) {
  const ConfigFields fields(config);
  if (!fields.Flag("use_sliding_window", false) || fields.Find("layer_types") != nullptr) return;
  const std::int64_t layers = fields.Integer("num_hidden_layers", 1, kMostLayers).value_or(0);
  const std::int64_t end = fields.Integer("max_window_layers", 0, kMostLayers).value_or(0);
  std::vector<std::string> types;
  for (std::int64_t i = 0; i < layers; ++i) {
    types.emplace_back(i % 2 == 0 && i < end ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

}  // namespace

std::unique_ptr<Module> BuildQwen2Moe(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const MoeConfig moe = MoeConfig::Parse(config);
  const AttentionOptions attention{.qkv_bias = config.qkv_bias};
  const MoeOptions options{.routing = {.normalize = moe.norm_topk_prob, .round_weights = true},
                           .shared_name = "shared_expert",
                           .shared_gate = true};
  return std::make_unique<DecoderForCausalLM>("Qwen2MoeForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, attention),
                                          MakeFeedForward(context, config, moe, layer, options));
  });
}

void CompleteQwen2Moe(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 16},
                       {"max_position_embeddings", 32768},
                       {"use_sliding_window", false},
                       {"sliding_window", 4096},
                       {"max_window_layers", 28},
                       {"num_local_experts", 60},
                       {"num_experts_per_tok", 4},
                       {"moe_intermediate_size", 1408},
                       {"shared_expert_intermediate_size", 5632}});
  ListWindows(config);
}

}  // namespace layercast
