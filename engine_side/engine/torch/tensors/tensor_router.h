// The router of the decode step: which experts a row goes to, and how much each of them counts. See
// engine_side/engine/cpu/blocks/router.h. Used by the block of a mixture of experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"

namespace layercast {

// The routing of each row; both tensors are [rows, experts]. Value.
struct RoutedRows {
  at::Tensor chosen;   // bool
  at::Tensor weights;  // fp32; 0 where not chosen
};

// Chooses as ChooseExperts in engine_side/engine/cpu/blocks/router.h does, for every row of `logits`, fp32 [rows,
// experts]. `bias` is [experts], or undefined for none.
RoutedRows ChooseExperts(const Routing& routing, const at::Tensor& logits, const at::Tensor& bias);

// Resource; one thread only.
class TensorRouter {
 public:
  TensorRouter(const RouterDescription& description, const at::Device& device);
  RoutedRows Route(const StepInputs& inputs, const at::Tensor& in) const;

 private:
  Routing routing_;
  at::ScalarType weights_type_;
  TensorLinear logits_;
  std::optional<WeightTensor> correction_bias_;
};

}  // namespace layercast
