// Qwen2 and Qwen2.5: q, k and v always have a bias, and nothing else has one.
#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"

namespace layercast {

std::unique_ptr<Module> BuildQwen2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const AttentionOptions attention{.qkv_bias = true};
  return std::make_unique<DecoderForCausalLM>("Qwen2ForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, attention),
                                          std::make_unique<GatedMlp>(context, config, false));
  });
}

void CompleteQwen2(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 32},
                       {"max_position_embeddings", 32768},
                       {"use_sliding_window", false},
                       {"sliding_window", 4096},
                       {"max_window_layers", 28}});
}

}  // namespace layercast
