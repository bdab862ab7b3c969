// Phi-3: checkpoints hold qkv_proj and gate_up_proj fused, under the names that the layers have here. A part of each
// head may be rotated instead of the whole.
#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"

namespace layercast {

std::unique_ptr<Module> BuildPhi3(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  return std::make_unique<DecoderForCausalLM>("Phi3ForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, AttentionOptions()),
                                          std::make_unique<GatedMlp>(context, config, false));
  });
}

void CompletePhi3(nlohmann::json& config) {
  AddDefaults(config, {{"use_sliding_window", true},
                       {"rms_norm_eps", 1e-5},
                       {"max_position_embeddings", 4096},
                       {"original_max_position_embeddings", 4096}});
}

}  // namespace layercast
