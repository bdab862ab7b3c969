// Mamba-2's mixer in the decode step: one token of each slot. Made by MakeTensorBlock.
#pragma once

#include "engine_side/engine/torch/tensors/slot_states.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_conv.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"

namespace layercast {

// Resource; one thread only.
class TensorMamba final : public TensorBlock {
 public:
  TensorMamba(const MambaDescription& description, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;
  bool is_recurrent() const override { return true; }

 private:
  // The selective scan, [rows, inner], not rounded. `channels` holds x, B and C, [rows, channels]; `steps` the heads'
  // time steps.
  at::Tensor Scan(const StepInputs& inputs, const at::Tensor& channels, const at::Tensor& steps);
  at::Tensor Normalized(const at::Tensor& scanned, const at::Tensor& gate) const;

  MambaSizes sizes_;
  MambaOptions options_;
  at::ScalarType type_;
  TensorLinear in_proj_, out_proj_;
  TensorConv conv_;
  WeightTensor a_, d_, dt_bias_;
  WeightTensor norm_;
  double epsilon_;
  SlotStates states_;  // [num_heads, head_dim, state_size]
};

}  // namespace layercast
