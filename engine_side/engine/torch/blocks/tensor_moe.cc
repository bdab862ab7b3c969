#include "engine_side/engine/torch/blocks/tensor_moe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros_like.h>

#include "engine_side/engine/torch/tensors/tensor_activation.h"

namespace layercast {
namespace {

std::unique_ptr<TensorBlock> FindShared(const MixtureOfExperts& moe, const std::string& path,
                                        const TensorContext& context) {
  const std::string& name = moe.options().shared_name;
  const Module* shared = name.empty() ? nullptr : moe.FindChild(name);
  return shared == nullptr ? nullptr : MakeTensorBlock(*shared, path + "." + name, context);
}

std::optional<TensorLinear> FindLinear(const MixtureOfExperts& moe, const char* name, const std::string& path,
                                       const TensorContext& context) {
  return moe.FindChild(name) == nullptr ? std::nullopt : std::optional(ChildLinear(moe, name, path, context));
}

// (u + 1) * g * sigmoid(alpha * g) of clamped gate g and clamped up u, rounded after every operation.
at::Tensor ClampedGateTimesUp(const ClampedGate& clamped, const at::Tensor& gate, const at::Tensor& up,
                              at::ScalarType type) {
  const at::Tensor g = at::clamp(gate, std::nullopt, clamped.limit);
  const at::Tensor u = at::clamp(up, -clamped.limit, clamped.limit);
  const at::Tensor share = Rounded(at::sigmoid(Rounded(g * clamped.alpha, type)), type);
  return Rounded(Rounded(u + 1.0, type) * Rounded(g * share, type), type);
}

}  // namespace

TensorMoe::TensorMoe(const MixtureOfExperts& moe, const std::string& path, const TensorContext& context)
    : type_(context.type),
      activation_(ActivationOf(moe.hidden_act())),
      gated_(moe.options().experts.gated),
      clamped_gate_(moe.options().clamped_gate),
      router_(moe, path, context),
      shared_(FindShared(moe, path, context)),
      shared_gate_(FindLinear(moe, "shared_expert_gate", path, context)),
      to_latent_(FindLinear(moe, "fc1_latent_proj", path, context)),
      from_latent_(FindLinear(moe, "fc2_latent_proj", path, context)) {
  const std::vector<LinearWeights> w13 = context.weights.LinearStack(moe.experts(), path + ".experts", "w13");
  const std::vector<LinearWeights> w2 = context.weights.LinearStack(moe.experts(), path + ".experts", "w2");
  for (std::size_t i = 0; i < w13.size(); ++i) {
    // An expert's output is not rounded before the sum over experts.
    experts_.push_back({{w13[i], context.device, type_}, {w2[i], context.device, at::kFloat}});
  }
}

at::Tensor TensorMoe::Forward(const StepInputs& inputs, const at::Tensor& in) {
  const RoutedRows routed = router_.Route(in);
  const at::Tensor out =
      to_latent_ ? from_latent_->Apply(SumExperts(routed, to_latent_->Apply(in))) : SumExperts(routed, in);
  return shared_ == nullptr ? out : Rounded(out + Shared(inputs, in), type_);
}

at::Tensor TensorMoe::SumExperts(const RoutedRows& routed, const at::Tensor& in) const {
  at::Tensor sum = at::zeros_like(in);
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    const Expert& expert = experts_[i];
    const auto column = static_cast<std::int64_t>(i);
    const at::Tensor out = expert.w2.Apply(Activate(expert.w13.Apply(in), expert.w2.cols()));
    // An expert may produce infinities for rows that did not choose it: 0 times that would reach the sum.
    sum.add_((out * routed.weights.narrow(1, column, 1))
                 .masked_fill_(routed.chosen.narrow(1, column, 1).logical_not(), 0.0));
  }
  return Rounded(sum, type_);
}

at::Tensor TensorMoe::Activate(const at::Tensor& w13, std::int64_t width) const {
  if (!gated_) return Rounded(Activated(activation_, w13), type_);
  const at::Tensor gate = w13.narrow(1, 0, width);
  const at::Tensor up = w13.narrow(1, width, width);
  if (clamped_gate_) return ClampedGateTimesUp(*clamped_gate_, gate, up, type_);
  return GateTimesUp(activation_, gate, up, type_);
}

at::Tensor TensorMoe::Shared(const StepInputs& inputs, const at::Tensor& in) const {
  const at::Tensor out = shared_->Forward(inputs, in);
  if (!shared_gate_) return out;
  return Rounded(out * Rounded(at::sigmoid(shared_gate_->Apply(in)), type_), type_);
}

}  // namespace layercast
