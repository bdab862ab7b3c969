#include "engine_side/engine/torch/tensors/tensor_conv.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

namespace layercast {

TensorConv::TensorConv(const LinearWeights& weights, const TensorContext& context)
    : taps_(weights.weight, context.device),
      bias_(IfAny<WeightTensor>(weights.bias, context.device)),
      window_({taps_.rows(), taps_.cols() - 1}, context) {}

at::Tensor TensorConv::Apply(const StepInputs& inputs, const at::Tensor& tokens) {
  const at::Tensor window = at::cat({window_.Of(inputs), tokens.unsqueeze(-1)}, -1);
  window_.Put(inputs, window.narrow(-1, 1, window.size(-1) - 1));
  at::Tensor sums = (window * taps_.Read()).sum(-1);
  if (bias_) sums.add_(bias_->ReadVector());
  return sums;
}

}  // namespace layercast
