#include "engine_side/engine/torch/blocks/tensor_mlp.h"

#include "engine_side/engine/torch/tensors/tensor_activation.h"

namespace layercast {

TensorGatedMlp::TensorGatedMlp(const GatedMlp& mlp, const std::string& path, const TensorContext& context)
    : type_(context.type),
      activation_(ActivationOf(mlp.hidden_act())),
      gate_up_(ChildLinear(mlp, "gate_up_proj", path, context)),
      down_(ChildLinear(mlp, "down_proj", path, context)) {}

at::Tensor TensorGatedMlp::Forward(const StepInputs& /*inputs*/, const at::Tensor& in) {
  const at::Tensor gate_up = gate_up_.Apply(in);
  const std::int64_t width = down_.cols();
  return down_.Apply(GateTimesUp(activation_, gate_up.narrow(1, 0, width), gate_up.narrow(1, width, width), type_));
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
