// Nemotron-H: each layer is one mixer, which is a state space model, attention without rotary embeddings, an MLP
// without a gate, or experts without gates, picked by sigmoid scores plus a bias that does not enter their weights.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/families/backbone_names.h"
#include "engine_side/model/families/corrected_sigmoid_experts.h"
#include "engine_side/model/families/draft_layers.h"
#include "engine_side/model/families/families.h"
#include "layercast/error.h"
#include "layercast/model/decoder.h"
#include "layercast/model/mamba_mixer.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {
namespace {

// Each layer has one block. The blocks are given as a list or as a pattern such as "M-M*", which also sets the number
// of layers.
void UseLayerTypes(nlohmann::json& config) {
  const std::map<char, std::string> of_pattern = {
      {'M', "linear_attention"}, {'*', "full_attention"}, {'-', "mlp"}, {'E', "moe"}};
  const std::map<std::string, std::string> old_names = {{"mamba", "linear_attention"}, {"attention", "full_attention"}};
  const ConfigFields fields(config);
  std::vector<std::string> types = fields.Texts("layers_block_type");
  for (std::string& type : types) {
    if (const auto usual = old_names.find(type); usual != old_names.end()) type = usual->second;
  }
  if (types.empty()) {
    for (const char block : fields.Text("hybrid_override_pattern", "")) {
      const auto type = of_pattern.find(block);
      types.push_back(type == of_pattern.end() ? std::string(1, block) : type->second);
    }
  }
  if (types.empty()) return;
  config["num_hidden_layers"] = types.size();
  config["layer_types"] = std::move(types);
}

// Published files use the first names of some fields. If both names are there, the old one counts, as in transformers.
void UseUsualNames(nlohmann::json& config) {
  constexpr std::pair<const char*, const char*> kOldNames[] = {{"mamba_n_groups", "n_groups"},
                                                               {"mamba_d_conv", "conv_kernel"},
                                                               {"mamba_dt_min", "time_step_min"},
                                                               {"mamba_conv_bias", "use_conv_bias"}};
  for (const auto& [old_name, name] : kOldNames) {
    if (config.contains(old_name)) config[name] = config[old_name];
  }
}

}  // namespace

std::unique_ptr<Module> BuildNemotronH(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{.parallel = parallel, .dtype = dtype, .norm = NormStyle::kFp32Weight};
  const ConfigFields fields = ConfigFields::Of(config);
  const MambaSizes sizes{.num_heads = fields.Size("mamba_num_heads", 128),
                         .head_dim = fields.Size("mamba_head_dim", 64),
                         .state_size = fields.Size("ssm_state_size", 128),
                         .num_groups = fields.Size("n_groups", 8),
                         .conv_kernel = fields.Size("conv_kernel", 4),
                         .heads_field = "mamba_num_heads"};
  const MambaOptions options{.bias = fields.Flag("use_bias", false),
                             .conv_bias = fields.Flag("use_conv_bias", true),
                             .norm_epsilon = config.rms_norm_eps,
                             .time_step_min = fields.Number("time_step_min", 0.001)};  // time_step_limit is not read
  const bool has_experts = std::ranges::count(config.layer_types, "moe") > 0;
  const MoeConfig moe = has_experts ? MoeConfig::Parse(config) : MoeConfig();
  MoeOptions experts = CorrectedSigmoidExperts(moe);
  experts.experts.gated = false;
  experts.router.fp32_weight = true;
  const auto make_mixer = [&](std::int64_t layer) -> std::unique_ptr<Module> {
    const std::string& type = config.layer_types.at(static_cast<std::size_t>(layer));
    if (type == "linear_attention") return std::make_unique<MambaMixer>(context, sizes, config.hidden_size, options);
    if (type == "full_attention") {
      return std::make_unique<Attention>(context, config, layer, AttentionOptions{.rotary = false});
    }
    if (type == "mlp") return std::make_unique<Mlp>(context, config, config.mlp_bias);
    if (type == "moe") return std::make_unique<MixtureOfExperts>(context, config, moe, experts);
    throw Error(ErrorCode::kUnsupported,
                "config.json: layers_block_type: expected linear_attention, full_attention, mlp or moe of layer " +
                    std::to_string(layer) + ", got \"" + type + "\"");
  };
  auto model = std::make_unique<DecoderForCausalLM>("NemotronHForCausalLM", context, config, [&](std::int64_t index) {
    auto layer = std::make_unique<DecoderLayer>(context, config);
    layer->AddStep({"norm", "mixer", {}}, make_mixer(index));
    return layer;
  });
  model->SetMapper(WeightsMapper({DropDraft("mtp")}) | BackboneNames() | model->mapper());
  return model;
}

void CompleteNemotronH(nlohmann::json& config) {
  AddDefaults(config, {{"num_key_value_heads", 8},
                       {"head_dim", 128},
                       {"layer_norm_epsilon", 1e-5},
                       {"mlp_hidden_act", "relu2"},
                       {"num_local_experts", 8},
                       {"num_experts_per_tok", 2},
                       {"moe_intermediate_size", 7688},
                       {"moe_shared_expert_intermediate_size", 7688},
                       {"norm_topk_prob", true},
                       {"max_position_embeddings", 4096}});
  // Fields that the configuration class does not have.
  for (const char* other : {"rms_norm_eps", "shared_expert_intermediate_size"}) config.erase(other);
  UseUsualNames(config);
  config["hidden_act"] = ConfigFields(config).Text("mlp_hidden_act", "relu2");
  UseLayerTypes(config);
}

}  // namespace layercast
