// Mamba-2: a mixer in each layer, no attention and no MLP. Checkpoints call the decoder `backbone`.
#include <nlohmann/json.hpp>
#include <vector>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/families/backbone_names.h"
#include "engine_side/model/families/families.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mamba_mixer.h"

namespace layercast {

std::unique_ptr<Module> BuildMamba2(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const ConfigFields fields = ConfigFields::Of(config);
  const MambaSizes sizes{.num_heads = fields.Size("num_heads", 128),
                         .head_dim = fields.Size("head_dim", 64),
                         .state_size = fields.Size("state_size", 128),
                         .num_groups = fields.Size("n_groups", 8),
                         .conv_kernel = fields.Size("conv_kernel", 4)};
  MambaOptions options{.bias = fields.Flag("use_bias", false),
                       .conv_bias = fields.Flag("use_conv_bias", true),
                       .norm_epsilon = config.rms_norm_eps};
  if (const std::vector<double> limit = fields.Numbers("time_step_limit"); !limit.empty()) {
    if (limit.size() != 2) fields.Refuse("time_step_limit", "two numbers", *fields.Find("time_step_limit"));
    options.time_step_min = limit[0];
    options.time_step_max = limit[1];
  }
  const auto make_layer = [&](std::int64_t) {
    auto layer = std::make_unique<DecoderLayer>(context, config);
    layer->AddStep({"norm", "mixer", {}}, std::make_unique<MambaMixer>(context, sizes, config.hidden_size, options));
    return layer;
  };
  const DecoderOptions sums{.fp32_residual = fields.Flag("residual_in_fp32", true)};
  auto model = std::make_unique<DecoderForCausalLM>("Mamba2ForCausalLM", context, config, make_layer, sums);
  model->SetMapper(BackboneNames() | model->mapper());
  return model;
}

void CompleteMamba2(nlohmann::json& config) {
  AddDefaults(config, {{"layer_norm_epsilon", 1e-5},
                       {"max_position_embeddings", 1 << 20},
                       {"time_step_limit", {0.0, {{"__float__", "Infinity"}}}}});
  config.erase("rms_norm_eps");  // the configuration class has no such field
}

}  // namespace layercast
