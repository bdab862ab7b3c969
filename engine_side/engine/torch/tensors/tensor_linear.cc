#include "engine_side/engine/torch/tensors/tensor_linear.h"

#include <ATen/ops/mm.h>

#include "engine_side/engine/torch/tensors/tensor_block.h"

namespace layercast {

at::Tensor Rounded(const at::Tensor& values, at::ScalarType type) {
  return type == at::kFloat ? values : values.to(type).to(at::kFloat);
}

TensorLinear::TensorLinear(const LinearWeights& weights, const at::Device& device, at::ScalarType type)
    : weight_(weights.weight, device), type_(type) {
  if (weights.bias) bias_.emplace(*weights.bias, device);
}

at::Tensor TensorLinear::Apply(const at::Tensor& x) const {
  at::Tensor y = at::mm(x, weight_.Read().t());
  if (bias_) y.add_(bias_->ReadVector());
  return Rounded(y, type_);
}

TensorLinear ChildLinear(const Module& module, const char* name, const std::string& path,
                         const TensorContext& context) {
  return {context.weights.Linear(*module.FindChild(name), path + "." + name), context.device, context.type};
}

}  // namespace layercast
