// Linear layers of the decode step, and its rounding. Used by the step and its blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "engine_side/engine/blocks/operands.h"
#include "engine_side/engine/torch/tensors/step_inputs.h"
#include "engine_side/engine/torch/tensors/tensor_low_rank.h"
#include "engine_side/engine/torch/tensors/weight_tensor.h"

namespace layercast {

// Rounds fp32 numbers to the nearest value of `type`, and keeps them as fp32; does nothing for kFloat. It is RoundTo in
// tensors.
at::Tensor Rounded(const at::Tensor& values, at::ScalarType type);

// A linear layer. Value; the weights' memory is borrowed.
class TensorLinear {
 public:
  TensorLinear(const LinearOperand& linear, const at::Device& device);
  // The layer's output for each row of x, [n, rows], bias included, summed in fp32 and rounded as is described; then
  // what adapters add, and rounded again.
  at::Tensor Apply(const StepInputs& inputs, const at::Tensor& x) const;
  std::int64_t cols() const { return weight_.cols(); }

 private:
  WeightTensor weight_;
  std::optional<WeightTensor> bias_;
  TensorLowRank adapter_;
  at::ScalarType type_;
};

}  // namespace layercast
