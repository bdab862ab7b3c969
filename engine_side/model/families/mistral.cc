// Mistral: no biases; every layer has a sliding window if the configuration gives one.
#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"

namespace layercast {

std::unique_ptr<Module> BuildMistral(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  return std::make_unique<DecoderForCausalLM>("MistralForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, AttentionOptions()),
                                          std::make_unique<GatedMlp>(context, config, false));
  });
}

void CompleteMistral(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 8},
                       {"max_position_embeddings", 131072},
                       {"use_sliding_window", true},
                       {"sliding_window", 4096}});
}

}  // namespace layercast
