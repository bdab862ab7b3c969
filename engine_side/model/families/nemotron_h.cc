// Nemotron-H: each layer is one mixer, a state space, attention without rotary embeddings, or an MLP without a gate.
#include <nlohmann/json.hpp>

#include "engine_side/model/config_fields.h"
#include "engine_side/model/families/backbone_names.h"
#include "engine_side/model/families/families.h"
#include "layercast/error.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mamba_mixer.h"

namespace layercast {

std::unique_ptr<Module> BuildNemotronH(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  const auto json = nlohmann::json::parse(config.json);
  const ConfigFields fields(json, {});
  const MambaSizes sizes{.num_heads = fields.Size("mamba_num_heads", 128),
                         .head_dim = fields.Size("mamba_head_dim", 64),
                         .state_size = fields.Size("ssm_state_size", 128),
                         .num_groups = fields.Size("n_groups", 8),
                         .conv_kernel = fields.Size("conv_kernel", 4)};
  const MambaOptions options{.bias = fields.Flag("use_bias", false),
                             .conv_bias = fields.Flag("use_conv_bias", true),
                             .norm_epsilon = config.rms_norm_eps,
                             .time_step_min = fields.Number("time_step_min", 0.001)};  // time_step_limit is not read
  const auto make_mixer = [&](std::int64_t layer) -> std::unique_ptr<Module> {
    const std::string& type = config.layer_types.at(static_cast<std::size_t>(layer));
    if (type == "linear_attention") return std::make_unique<MambaMixer>(context, sizes, config.hidden_size, options);
    if (type == "full_attention") {
      return std::make_unique<Attention>(context, config, layer, AttentionOptions{.rotary = false});
    }
    if (type == "mlp") return std::make_unique<Mlp>(context, config, config.mlp_bias);
    throw Error(ErrorCode::kUnsupported,
                "config.json: layers_block_type: expected linear_attention, full_attention or "
                "mlp of layer " +
                    std::to_string(layer) + ", got \"" + type + "\"");
  };
  auto model = std::make_unique<DecoderForCausalLM>("NemotronHForCausalLM", context, config, [&](std::int64_t index) {
    auto layer = std::make_unique<DecoderLayer>(context, config);
    layer->AddStep({"norm", "mixer", {}}, make_mixer(index));
    return layer;
  });
  model->SetMapper(BackboneNames() | model->mapper());
  return model;
}

}  // namespace layercast
