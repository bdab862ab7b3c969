#include "engine_side/engine/torch/tensors/tensor_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>

#include "engine_side/engine/cpu/blocks/row_norm.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"

namespace layercast {

TensorNorm::TensorNorm(const Module& module, const std::string& path, CapturedWeights& weights,
                       const at::Device& device, at::ScalarType type)
    : weight_(weights.Find(AsRmsNorm(module, path), path), device),
      epsilon_(AsRmsNorm(module, path).epsilon()),
      style_(AsRmsNorm(module, path).style()),
      type_(type) {}

at::Tensor TensorNorm::Apply(const at::Tensor& x) const {
  at::Tensor factors = weight_.ReadVector();
  if (style_ == NormStyle::kOnePlusWeight) factors = factors + 1.0;
  const at::Tensor scale = at::mean(x * x, {-1}, /*keepdim=*/true).add_(epsilon_).rsqrt_();
  const at::Tensor normed = Rounded(x * scale, style_ == NormStyle::kWeight ? type_ : at::kFloat);
  return Rounded(normed * factors, type_);
}

TensorNorm ChildNorm(const Module& module, const std::string& name, const std::string& path,
                     const TensorContext& context) {
  return {*module.FindChild(name), path + "." + name, context.weights, context.device, context.type};
}

std::optional<TensorNorm> FindChildNorm(const Module& module, const std::string& name, const std::string& path,
                                        const TensorContext& context) {
  if (module.FindChild(name) == nullptr) return std::nullopt;
  return ChildNorm(module, name, path, context);
}

}  // namespace layercast
