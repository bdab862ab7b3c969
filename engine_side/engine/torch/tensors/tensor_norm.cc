#include "engine_side/engine/torch/tensors/tensor_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>

#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/torch_type.h"

namespace layercast {

TensorNorm::TensorNorm(const NormOperand& norm, const at::Device& device)
    : weight_(norm.weight, device), epsilon_(norm.epsilon), style_(norm.style), type_(*TorchTypeOf(norm.dtype)) {}

at::Tensor TensorNorm::Apply(const at::Tensor& x) const {
  at::Tensor factors = weight_.ReadVector();
  if (style_ == NormStyle::kOnePlusWeight) factors = factors + 1.0;
  const at::Tensor scale = at::mean(x * x, {-1}, /*keepdim=*/true).add_(epsilon_).rsqrt_();
  const at::Tensor normed = Rounded(x * scale, style_ == NormStyle::kWeight ? type_ : at::kFloat);
  return Rounded(normed * factors, type_);
}

}  // namespace layercast
