// An RMS norm of the decode step. Used by the step and by attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine_side/engine/blocks/operands.h"
#include "engine_side/engine/torch/tensors/weight_tensor.h"

namespace layercast {

// An RMS norm. Value; the weight's memory is borrowed.
class TensorNorm {
 public:
  TensorNorm(const NormOperand& norm, const at::Device& device);
  // Normalizes over the last dimension, which has size() elements, and rounds as the norm's style says.
  at::Tensor Apply(const at::Tensor& x) const;
  std::int64_t size() const { return weight_.cols(); }

 private:
  WeightTensor weight_;
  double epsilon_;
  NormStyle style_;
  at::ScalarType type_;
};

}  // namespace layercast
