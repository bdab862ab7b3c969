#include "layercast/model/mixture_of_experts.h"

#include <utility>

#include "layercast/model/linear.h"
#include "layercast/model/mlp.h"

namespace layercast {

MixtureOfExperts::MixtureOfExperts(const LayerContext& context, const ModelConfig& config, const MoeConfig& moe,
                                   const MoeOptions& options)
    : Module("MixtureOfExperts"),
      options_(options),
      other_name_{options_.other_name, {}},
      hidden_act_(config.hidden_act) {
  options_.routing.top_k = moe.num_experts_per_tok;
  options_.routing.scale = moe.routed_scaling_factor;
  options_.routing.num_groups = moe.n_group;
  options_.routing.top_groups = moe.topk_group;
  options_.experts.num_experts = moe.num_experts;
  options_.experts.hidden_size = moe.latent_size == 0 ? config.hidden_size : moe.latent_size;
  options_.experts.intermediate_size = moe.intermediate_size;
  options_.experts.size_field = moe.size_field;
  AddChild(options.router_name,
           std::make_unique<ExpertRouter>(context, config.hidden_size, moe.num_experts, options.router));
  if (moe.latent_size != 0) AddLatentProjections(context, config, moe.latent_size);
  auto experts = std::make_unique<FusedMoE>(context, options_.experts);
  experts_ = experts.get();
  AddChild("experts", std::move(experts));
  if (options.shared_name.empty() || moe.shared_intermediate_size == 0) return;
  AddChild(options.shared_name, MakeShared(context, config, moe));
  if (!options.shared_gate) return;
  AddChild("shared_expert_gate",
           std::make_unique<ReplicatedLinear>(context.Unquantized(), config.hidden_size, 1, false));
}

void MixtureOfExperts::AddLatentProjections(const LayerContext& context, const ModelConfig& config, std::int64_t size) {
  const auto add = [&](const char* name, std::int64_t from, std::int64_t to) {
    AddChild(name, std::make_unique<ReplicatedLinear>(context, from, to, config.mlp_bias));
  };
  add("fc1_latent_proj", config.hidden_size, size);
  add("fc2_latent_proj", size, config.hidden_size);
}

std::unique_ptr<Module> MixtureOfExperts::MakeShared(const LayerContext& context, const ModelConfig& config,
                                                     const MoeConfig& moe) const {
  const std::int64_t size = moe.shared_intermediate_size;
  const std::string& field = moe.shared_size_field;
  if (options_.experts.gated) return std::make_unique<GatedMlp>(context, config, false, size, field);
  return std::make_unique<Mlp>(context, config, config.mlp_bias, size, field);
}

std::unique_ptr<Module> MakeFeedForward(const LayerContext& context, const ModelConfig& config, const MoeConfig& moe,
                                        std::int64_t layer, const MoeOptions& options) {
  if (moe.sparse_layers.at(static_cast<std::size_t>(layer))) {
    return std::make_unique<MixtureOfExperts>(context, config, moe, options);
  }
  return std::make_unique<GatedMlp>(context, config, false);
}

}  // namespace layercast
