#include "engine_side/engine/torch/tensor_mlp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>

namespace layercast {
namespace {

at::Tensor Activated(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kSilu: return at::silu(x);
    case Activation::kGelu: return at::gelu(x, "none");
    case Activation::kReluSquared: return at::relu(x).square();
    case Activation::kGeluTanh: break;
  }
  return at::gelu(x, "tanh");
}

}  // namespace

TensorGatedMlp::TensorGatedMlp(const GatedMlp& mlp, const std::string& path, const TensorContext& context)
    : type_(context.type),
      activation_(ActivationOf(mlp.hidden_act())),
      gate_up_(ChildLinear(mlp, "gate_up_proj", path, context)),
      down_(ChildLinear(mlp, "down_proj", path, context)) {}

at::Tensor TensorGatedMlp::Forward(const StepInputs& /*inputs*/, const at::Tensor& in) {
  const at::Tensor gate_up = gate_up_.Apply(in);
  const std::int64_t width = down_.cols();
  const at::Tensor gate = Rounded(Activated(activation_, gate_up.narrow(1, 0, width)), type_);
  return down_.Apply(Rounded(gate * gate_up.narrow(1, width, width), type_));
}

TensorMlp::TensorMlp(const Mlp& mlp, const std::string& path, const TensorContext& context)
    : type_(context.type),
      activation_(ActivationOf(mlp.hidden_act())),
      up_(ChildLinear(mlp, "up_proj", path, context)),
      down_(ChildLinear(mlp, "down_proj", path, context)) {}

at::Tensor TensorMlp::Forward(const StepInputs& /*inputs*/, const at::Tensor& in) {
  return down_.Apply(Rounded(Activated(activation_, up_.Apply(in)), type_));
}

}  // namespace layercast
