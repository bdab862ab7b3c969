// Qwen3: queries and keys are normalized head by head; head_dim is explicit.
#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"

namespace layercast {

std::unique_ptr<Module> BuildQwen3(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const AttentionOptions attention{
      .qkv_bias = config.attention_bias, .output_bias = config.attention_bias, .qk_norm = true};
  return std::make_unique<DecoderForCausalLM>("Qwen3ForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, attention),
                                          std::make_unique<GatedMlp>(context, config, false));
  });
}

void CompleteQwen3(nlohmann::json& config) {
  AddDefaults(config, {{"head_dim", 128}});
  CompleteQwen2(config);
}

}  // namespace layercast
