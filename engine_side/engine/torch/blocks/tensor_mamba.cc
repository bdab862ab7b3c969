#include "engine_side/engine/torch/blocks/tensor_mamba.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>

namespace layercast {
namespace {

// Repeats what each group of heads has, [rows, groups, n], for each head, [rows, heads, n].
at::Tensor ForHeads(const at::Tensor& of_groups, std::int64_t heads) {
  const std::int64_t of_one = heads / of_groups.size(1);
  return of_groups.unsqueeze(2).expand({-1, -1, of_one, -1}).flatten(1, 2);
}

}  // namespace

TensorMamba::TensorMamba(const MambaDescription& description, const TensorContext& context)
    : sizes_(description.sizes),
      options_(description.options),
      type_(context.type),
      in_proj_(description.in_proj, context.device),
      out_proj_(description.out_proj, context.device),
      conv_(description.conv1d, context),
      a_(description.a, context.device),
      d_(description.d, context.device),
      dt_bias_(description.dt_bias, context.device),
      norm_(description.norm.weight, context.device),
      epsilon_(description.norm.epsilon),
      states_({sizes_.num_heads, sizes_.head_dim, sizes_.state_size}, context) {}

at::Tensor TensorMamba::Forward(const StepInputs& inputs, const at::Tensor& in) {
  const at::Tensor projected = in_proj_.Apply(inputs, in);
  const std::int64_t inner = sizes_.inner(), channels = conv_.channels();
  const at::Tensor mixed = Rounded(conv_.Apply(inputs, projected.narrow(1, inner, channels)), type_);
  const at::Tensor scanned =
      Scan(inputs, Rounded(at::silu(mixed), type_), projected.narrow(1, inner + channels, sizes_.num_heads));
  return out_proj_.Apply(inputs, Normalized(scanned, projected.narrow(1, 0, inner)));
}

// For each head: state := exp(dt * a) * state + dt * x B^T, y := state C + D x.
at::Tensor TensorMamba::Scan(const StepInputs& inputs, const at::Tensor& channels, const at::Tensor& steps) {
  const std::int64_t heads = sizes_.num_heads, of_groups = sizes_.num_groups * sizes_.state_size;
  const at::Tensor x = channels.narrow(1, 0, sizes_.inner()).unflatten(1, {heads, -1});
  const auto of_heads = [&](std::int64_t begin) {
    return ForHeads(channels.narrow(1, begin, of_groups).unflatten(1, {sizes_.num_groups, -1}), heads).unsqueeze(2);
  };
  const at::Tensor b = of_heads(sizes_.inner()), c = of_heads(sizes_.inner() + of_groups);  // [rows, heads, 1, state]
  const at::Tensor dt =
      at::clamp(at::softplus(steps + dt_bias_.ReadVector()), options_.time_step_min, options_.time_step_max);
  const at::Tensor decay = at::exp(dt * a_.ReadVector()).unsqueeze(-1).unsqueeze(-1);
  const at::Tensor state = decay * states_.Of(inputs) + (dt.unsqueeze(-1) * x).unsqueeze(-1) * b;
  states_.Put(inputs, state);
  return ((state * c).sum(-1) + d_.ReadVector().unsqueeze(-1) * x).flatten(1);
}

// round(weight * g / sqrt(mean(g^2) + epsilon)) with g = y * silu(gate), for each group. As in the kernels of
// mamba_ssm, the scan's result is rounded only here.
at::Tensor TensorMamba::Normalized(const at::Tensor& scanned, const at::Tensor& gate) const {
  const at::Tensor gated = (scanned * at::silu(gate)).unflatten(1, {sizes_.num_groups, -1});
  const at::Tensor scale = at::mean(gated * gated, {-1}, /*keepdim=*/true).add_(epsilon_).rsqrt_();
  return Rounded((gated * scale).flatten(1) * norm_.ReadVector(), type_);
}

}  // namespace layercast
