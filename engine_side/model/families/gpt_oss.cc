// GPT-OSS: attention has sinks, and a window in every other layer; experts have biases and a gate of their own, and lie
// stacked and transposed on disk, gate and up column by column.
#include <nlohmann/json.hpp>

#include "engine_side/model/config_fields.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

std::unique_ptr<Module> BuildGptOss(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype, .norm = NormStyle::kFp32Weight};
  const auto json = nlohmann::json::parse(config.json);
  const ConfigFields fields(json, {});
  const MoeConfig moe = MoeConfig::Parse(config);
  const AttentionOptions attention{
      .qkv_bias = config.attention_bias, .output_bias = config.attention_bias, .sinks = true};
  // A softmax over the picked is that over all, normalized.
  const MoeOptions options{
      .routing = {.normalize = true, .round_weights = true},
      .router = {.bias = true},
      .router_name = "router",
      .experts = {.bias = true, .transposed = true, .interleaved = true},
      .clamped_gate = ClampedGate{fields.Number("swiglu_alpha", 1.702), fields.Number("swiglu_limit", 7.0)}};
  return std::make_unique<DecoderForCausalLM>("GptOssForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, attention),
                                          std::make_unique<MixtureOfExperts>(context, config, moe, options));
  });
}

}  // namespace layercast
