// A mixture of experts in the decode step. Made by MakeTensorBlock.
#pragma once

#include <optional>
#include <vector>

#include "engine_side/engine/torch/blocks/tensor_mlp.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/tensor_router.h"

namespace layercast {

// Only the device knows to which experts a row goes, so every expert computes every row, and its result counts for
// those rows that chose it: a step costs what it would with all experts chosen. Only one expert's weights are held as
// fp32 at a time. Resource; one thread only.
class TensorMoe final : public TensorBlock {
 public:
  TensorMoe(const MoeDescription& description, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;

 private:
  at::Tensor SumExperts(const StepInputs& inputs, const RoutedRows& routed, const at::Tensor& in) const;
  at::Tensor Shared(const StepInputs& inputs, const at::Tensor& in) const;

  at::ScalarType type_;
  TensorRouter router_;
  std::optional<TensorMlp> shared_;
  std::optional<TensorLinear> shared_gate_, to_latent_, from_latent_;
  std::vector<TensorMlp> experts_;
};

}  // namespace layercast
