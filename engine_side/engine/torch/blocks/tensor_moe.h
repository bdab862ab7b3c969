// A mixture of experts in the decode step. Made by MakeTensorBlock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine_side/engine/cpu/kernels/activation.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/tensor_router.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

// Only the device knows to which experts a row goes, so every expert computes every row, and its result counts for
// those rows that chose it: a step costs what it would with all experts chosen. Only one expert's weights are held as
// fp32 at a time. Resource; one thread only.
class TensorMoe final : public TensorBlock {
 public:
  TensorMoe(const MixtureOfExperts& moe, const std::string& path, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;

 private:
  struct Expert {
    TensorLinear w13, w2;
  };

  at::Tensor SumExperts(const RoutedRows& routed, const at::Tensor& in) const;
  // The activation of w13's output: of gate and up, or of up alone, each `width` wide.
  at::Tensor Activate(const at::Tensor& w13, std::int64_t width) const;
  at::Tensor Shared(const StepInputs& inputs, const at::Tensor& in) const;

  at::ScalarType type_;
  Activation activation_;
  bool gated_;
  std::optional<ClampedGate> clamped_gate_;
  TensorRouter router_;
  std::vector<Expert> experts_;
  std::unique_ptr<TensorBlock> shared_;  // null: none
  std::optional<TensorLinear> shared_gate_, to_latent_, from_latent_;
};

}  // namespace layercast
