#include "engine_side/engine/torch/tensors/tensor_linear.h"

#include <ATen/ops/mm.h>

#include "engine_side/engine/torch/tensors/torch_type.h"

namespace layercast {

at::Tensor Rounded(const at::Tensor& values, at::ScalarType type) {
  return type == at::kFloat ? values : values.to(type).to(at::kFloat);
}

TensorLinear::TensorLinear(const LinearOperand& linear, const at::Device& device)
    : weight_(linear.weight, device),
      bias_(IfAny<WeightTensor>(linear.bias, device)),
      adapter_(linear.adapter, device),
      type_(*TorchTypeOf(linear.dtype)) {}

at::Tensor TensorLinear::Apply(const StepInputs& inputs, const at::Tensor& x) const {
  at::Tensor y = at::mm(x, weight_.Read().t());
  if (bias_) y.add_(bias_->ReadVector());
  y = Rounded(y, type_);
  adapter_.AddTo(y, x, inputs, type_);
  return y;
}

}  // namespace layercast
