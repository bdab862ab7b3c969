#include "engine_side/engine/blocks/block_description.h"

#include "layercast/error.h"
#include "layercast/model/mlp.h"

namespace layercast {
namespace {

AttentionDescription Describe(const Attention& attention, const Operands& operands) {
  const AttentionSpec& spec = attention.spec();
  return {.spec = spec,
          .rotary = spec.rotary.dim == 0 ? nullptr : &operands.context().rotary.For(spec.rotary),
          .qkv_proj = operands.Linear("qkv_proj"),
          .o_proj = operands.Linear("o_proj"),
          .q_norm = operands.FindNorm("q_norm"),
          .k_norm = operands.FindNorm("k_norm"),
          .sinks = spec.sinks ? std::optional(operands.Own("sinks")) : std::nullopt};
}

LatentAttentionDescription Describe(const LatentAttention& attention, const Operands& operands) {
  const auto first_of = [&](const char* name, const char* otherwise) {
    return operands.Linear(operands.Has(name) ? name : otherwise);
  };
  const Operands absorbed(operands.Child("kv_b_proj"), operands.PathOf("kv_b_proj"), operands.context());
  LatentAttentionSpec spec = attention.spec();
  spec.sizes.num_heads = attention.local_heads();
  return {.spec = spec,
          .rotary = &operands.context().rotary.For(spec.rotary),
          .compress = first_of("fused_qkv_a_proj", "kv_a_proj_with_mqa"),
          .queries_of = first_of("q_b_proj", "q_proj"),
          .o_proj = operands.Linear("o_proj"),
          .w_uk_t = absorbed.Derived("W_UK_T"),
          .w_uv = absorbed.Derived("W_UV"),
          .kv_b_adapter = operands.Adapter("kv_b_proj"),
          .q_a_layernorm = operands.FindNorm("q_a_layernorm"),
          .kv_a_layernorm = operands.Norm("kv_a_layernorm")};
}

MlpDescription Describe(const GatedMlp& mlp, const Operands& operands) {
  return {.activation = {.function = ActivationOf(mlp.hidden_act())},
          .up = operands.Linear("gate_up_proj"),
          .down = operands.Linear("down_proj")};
}

MlpDescription Describe(const Mlp& mlp, const Operands& operands) {
  return {.activation = {.function = ActivationOf(mlp.hidden_act()), .gated = false},
          .up = operands.Linear("up_proj"),
          .down = operands.Linear("down_proj")};
}

RouterDescription DescribeRouter(const MoeOptions& options, const Operands& operands) {
  const std::string& name = options.router_name;
  const DType dtype = operands.context().dtype;
  RouterDescription router{.routing = options.routing,
                           .logits = operands.Linear(name),
                           .weights_dtype = options.routing.round_weights ? dtype : DType::kF32};
  if (options.routing.fp32_logits) router.logits.dtype = DType::kF32;
  if (options.router.correction_bias) {
    router.correction_bias =
        Operands(operands.Child(name), operands.PathOf(name), operands.context()).Own("e_score_correction_bias");
  }
  return router;
}

std::vector<MlpDescription> DescribeExperts(const MixtureOfExperts& moe, const MlpActivation& activation,
                                            const Operands& operands) {
  const auto stack = [&](const char* name) {
    return operands.context().weights.LinearStack(moe.experts(), operands.PathOf("experts"), name);
  };
  const std::vector<LinearWeights> w13 = stack("w13"), w2 = stack("w2");
  const AdapterOperand up = operands.Adapter("experts", "w13_weight"), down = operands.Adapter("experts", "w2_weight");
  std::vector<MlpDescription> experts;
  for (std::size_t i = 0; i < w13.size(); ++i) {
    experts.push_back({.activation = activation,
                       .up = {w13[i], operands.context().dtype, up.OfExpert(i)},
                       .down = {w2[i], DType::kF32, down.OfExpert(i)}});
  }
  return experts;
}

MoeDescription Describe(const MixtureOfExperts& moe, const Operands& operands) {
  const MoeOptions& options = moe.options();
  const MlpActivation activation{
      .function = ActivationOf(moe.hidden_act()), .gated = options.experts.gated, .clamped = options.clamped_gate};
  const auto shared = [&]() -> std::optional<MlpDescription> {
    const std::string& name = options.shared_name;
    if (name.empty() || !operands.Has(name)) return std::nullopt;
    return std::get<MlpDescription>(DescribeBlock(operands.Child(name), operands.PathOf(name), operands.context()));
  };
  return {.router = DescribeRouter(options, operands),
          .shared = shared(),
          .shared_gate = operands.FindLinear("shared_expert_gate"),
          .to_latent = operands.FindLinear("fc1_latent_proj"),
          .from_latent = operands.FindLinear("fc2_latent_proj"),
          .local = moe.experts().local(),
          .experts = DescribeExperts(moe, activation, operands)};
}

MambaDescription Describe(const MambaMixer& mixer, const Operands& operands) {
  return {.sizes = mixer.local_sizes(),
          .options = mixer.options(),
          .in_proj = operands.Linear("in_proj"),
          .out_proj = operands.Linear("out_proj"),
          .conv1d = operands.WithoutAdapter("conv1d"),
          .a = operands.Derived("A"),
          .d = operands.Own("D"),
          .dt_bias = operands.Own("dt_bias"),
          .norm = {.weight = operands.WithoutAdapter("norm").weight,
                   .epsilon = mixer.options().norm_epsilon,
                   .style = NormStyle::kFp32Weight,
                   .dtype = operands.context().dtype,
                   .total_size = mixer.sizes().group_inner()}};
}

DeltaNetDescription Describe(const GatedDeltaNet& net, const Operands& operands) {
  DeltaNetDescription described{.sizes = net.local_sizes(),
                                .qkvz_parts = {},
                                .ba_parts = {},
                                .activation = ActivationOf(net.options().hidden_act),
                                .in_proj_qkvz = operands.Linear("in_proj_qkvz"),
                                .in_proj_ba = operands.Linear("in_proj_ba"),
                                .out_proj = operands.Linear("out_proj"),
                                .conv1d = operands.WithoutAdapter("conv1d"),
                                .a = operands.Derived("A"),
                                .dt_bias = operands.Own("dt_bias"),
                                .norm = operands.Norm("norm")};
  if (net.options().rows == DeltaNetRows::kByKeyHead) {
    const DeltaNetSizes& sizes = described.sizes;
    const std::int64_t of_key = sizes.num_value_heads / sizes.num_key_heads, values = of_key * sizes.value_head_dim;
    described.qkvz_parts = {sizes.key_head_dim, sizes.key_head_dim, values, values};
    described.ba_parts = {of_key, of_key};
  }
  return described;
}

}  // namespace

BlockDescription DescribeBlock(const Module& module, const std::string& path, const DescriptionContext& context) {
  const Operands operands(module, path, context);
  if (const auto* attention = dynamic_cast<const Attention*>(&module)) return Describe(*attention, operands);
  if (const auto* attention = dynamic_cast<const LatentAttention*>(&module)) return Describe(*attention, operands);
  if (const auto* mlp = dynamic_cast<const GatedMlp*>(&module)) return Describe(*mlp, operands);
  if (const auto* mlp = dynamic_cast<const Mlp*>(&module)) return Describe(*mlp, operands);
  if (const auto* moe = dynamic_cast<const MixtureOfExperts*>(&module)) return Describe(*moe, operands);
  if (const auto* mixer = dynamic_cast<const MambaMixer*>(&module)) return Describe(*mixer, operands);
  if (const auto* net = dynamic_cast<const GatedDeltaNet*>(&module)) return Describe(*net, operands);
  throw Error(ErrorCode::kUnsupported,
              std::string(context.pass) + " cannot compute " + path + " (" + module.class_name() + ")");
}

}  // namespace layercast
