#include "engine_side/engine/torch/blocks/tensor_delta_net.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>

#include <cmath>

#include "engine_side/engine/torch/tensors/tensor_activation.h"

namespace layercast {

TensorDeltaNet::TensorDeltaNet(const DeltaNetDescription& description, const TensorContext& context)
    : sizes_(description.sizes),
      qkvz_parts_(description.qkvz_parts),
      ba_parts_(description.ba_parts),
      activation_(description.activation),
      type_(context.type),
      in_proj_qkvz_(description.in_proj_qkvz, context.device),
      in_proj_ba_(description.in_proj_ba, context.device),
      out_proj_(description.out_proj, context.device),
      conv_(description.conv1d, context),
      a_(description.a, context.device),
      dt_bias_(description.dt_bias, context.device),
      norm_(description.norm, context.device),
      states_({sizes_.num_value_heads, sizes_.key_head_dim, sizes_.value_head_dim}, context) {}

at::Tensor TensorDeltaNet::Forward(const StepInputs& inputs, const at::Tensor& in) {
  const std::int64_t heads = sizes_.num_value_heads;
  const at::Tensor qkvz = ByPart(in_proj_qkvz_.Apply(inputs, in), qkvz_parts_);
  const at::Tensor ba = ByPart(in_proj_ba_.Apply(inputs, in), ba_parts_);
  const at::Tensor mixed = Rounded(conv_.Apply(inputs, qkvz.narrow(1, 0, conv_.channels())), type_);
  const at::Tensor beta = Rounded(at::sigmoid(ba.narrow(1, 0, heads)), type_);
  const at::Tensor step = at::softplus(ba.narrow(1, heads, heads) + dt_bias_.ReadVector());
  const at::Tensor out =
      Update(inputs, Rounded(Activated(activation_, mixed), type_), at::exp(a_.ReadVector() * step), beta);
  // The gate is not rounded: it stays in fp32.
  const at::Tensor gate = at::silu(qkvz.narrow(1, conv_.channels(), sizes_.values())).unflatten(1, {heads, -1});
  return out_proj_.Apply(inputs, Rounded(norm_.Apply(Rounded(out, type_)) * gate, type_).flatten(1));
}

at::Tensor TensorDeltaNet::ByPart(const at::Tensor& projected, const std::vector<std::int64_t>& sizes) const {
  if (sizes.empty()) return projected;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : projected.unflatten(1, {sizes_.num_key_heads, -1}).split_with_sizes(sizes, 2)) {
    parts.push_back(part.flatten(1));
  }
  return at::cat(parts, 1);
}

at::Tensor TensorDeltaNet::Keys(const at::Tensor& channels, std::int64_t begin) const {
  const at::Tensor keys = channels.narrow(1, begin, sizes_.keys()).unflatten(1, {sizes_.num_key_heads, 1, -1});
  const at::Tensor length_one =
      keys * (keys * keys).sum(-1, /*keepdim=*/true).add_(DeltaNetDescription::kLengthEpsilon).rsqrt_();
  return length_one.expand({-1, -1, sizes_.num_value_heads / sizes_.num_key_heads, -1}).flatten(1, 2);
}

// state := decay * state, then += key (beta * (value - key state)); out := query state. Rows of a state are keys.
at::Tensor TensorDeltaNet::Update(const StepInputs& inputs, const at::Tensor& channels, const at::Tensor& decay,
                                  const at::Tensor& beta) {
  const at::Tensor key = Keys(channels, sizes_.keys()).unsqueeze(-1);  // [rows, value heads, keys, 1]
  const at::Tensor query = (Keys(channels, 0) / std::sqrt(static_cast<double>(sizes_.key_head_dim))).unsqueeze(-1);
  const at::Tensor value =
      channels.narrow(1, 2 * sizes_.keys(), sizes_.values()).unflatten(1, {sizes_.num_value_heads, -1});
  at::Tensor state = states_.Of(inputs).mul_(decay.unsqueeze(-1).unsqueeze(-1));
  const at::Tensor correction = beta.unsqueeze(-1) * (value - (key * state).sum(2));
  state = state + key * correction.unsqueeze(2);
  states_.Put(inputs, state);
  return (query * state).sum(2);
}

}  // namespace layercast
