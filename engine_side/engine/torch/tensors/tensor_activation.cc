#include "engine_side/engine/torch/tensors/tensor_activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>

#include "engine_side/engine/torch/tensors/tensor_linear.h"

namespace layercast {

at::Tensor Activated(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kSilu: return at::silu(x);
    case Activation::kGelu: return at::gelu(x, "none");
    case Activation::kReluSquared: return at::relu(x).square();
    case Activation::kGeluTanh: break;
  }
  return at::gelu(x, "tanh");
}

at::Tensor GateTimesUp(Activation activation, const at::Tensor& gate, const at::Tensor& up, at::ScalarType type) {
  return Rounded(Rounded(Activated(activation, gate), type) * up, type);
}

}  // namespace layercast
