#include "engine_side/engine/torch/blocks/tensor_mlp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/sigmoid.h>

#include "engine_side/engine/torch/tensors/tensor_activation.h"

namespace layercast {
namespace {

// (u + 1) * g * sigmoid(alpha * g) of clamped gate g and clamped up u, rounded after every operation.
at::Tensor ClampedGateTimesUp(const ClampedGate& clamped, const at::Tensor& gate, const at::Tensor& up,
                              at::ScalarType type) {
  const at::Tensor g = at::clamp(gate, std::nullopt, clamped.limit);
  const at::Tensor u = at::clamp(up, -clamped.limit, clamped.limit);
  const at::Tensor share = Rounded(at::sigmoid(Rounded(g * clamped.alpha, type)), type);
  return Rounded(Rounded(u + 1.0, type) * Rounded(g * share, type), type);
}

}  // namespace

TensorMlp::TensorMlp(const MlpDescription& description, const TensorContext& context)
    : activation_(description.activation),
      type_(context.type),
      up_(description.up, context.device),
      down_(description.down, context.device) {}

at::Tensor TensorMlp::Apply(const StepInputs& inputs, const at::Tensor& in) const {
  const at::Tensor up_out = up_.Apply(inputs, in);
  if (!activation_.gated) return down_.Apply(inputs, Rounded(Activated(activation_.function, up_out), type_));
  const at::Tensor gate = up_out.narrow(1, 0, down_.cols()), up = up_out.narrow(1, down_.cols(), down_.cols());
  if (activation_.clamped) return down_.Apply(inputs, ClampedGateTimesUp(*activation_.clamped, gate, up, type_));
  return down_.Apply(inputs, GateTimesUp(activation_.function, gate, up, type_));
}

}  // namespace layercast
