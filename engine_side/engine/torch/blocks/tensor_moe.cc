#include "engine_side/engine/torch/blocks/tensor_moe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros_like.h>

namespace layercast {

TensorMoe::TensorMoe(const MoeDescription& description, const TensorContext& context)
    : type_(context.type),
      router_(description.router, context.device),
      shared_gate_(IfAny<TensorLinear>(description.shared_gate, context.device)),
      to_latent_(IfAny<TensorLinear>(description.to_latent, context.device)),
      from_latent_(IfAny<TensorLinear>(description.from_latent, context.device)) {
  if (description.shared) shared_.emplace(*description.shared, context);
  for (const MlpDescription& expert : description.experts) experts_.emplace_back(expert, context);
}

at::Tensor TensorMoe::Forward(const StepInputs& inputs, const at::Tensor& in) {
  const RoutedRows routed = router_.Route(inputs, in);
  const at::Tensor out = to_latent_
                             ? from_latent_->Apply(inputs, SumExperts(inputs, routed, to_latent_->Apply(inputs, in)))
                             : SumExperts(inputs, routed, in);
  return shared_ ? Rounded(out + Shared(inputs, in), type_) : out;
}

at::Tensor TensorMoe::SumExperts(const StepInputs& inputs, const RoutedRows& routed, const at::Tensor& in) const {
  at::Tensor sum = at::zeros_like(in);
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i);
    const at::Tensor out = experts_[i].Apply(inputs, in);
    // An expert may produce infinities for rows that did not choose it: 0 times that would reach the sum.
    sum.add_((out * routed.weights.narrow(1, column, 1))
                 .masked_fill_(routed.chosen.narrow(1, column, 1).logical_not(), 0.0));
  }
  return Rounded(sum, type_);
}

at::Tensor TensorMoe::Shared(const StepInputs& inputs, const at::Tensor& in) const {
  const at::Tensor out = shared_->Apply(inputs, in);
  if (!shared_gate_) return out;
  return Rounded(out * Rounded(at::sigmoid(shared_gate_->Apply(inputs, in)), type_), type_);
}

}  // namespace layercast
