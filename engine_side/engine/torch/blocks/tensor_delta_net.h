// A gated delta net in the decode step: one token of each slot. Made by MakeTensorBlock.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/engine/torch/tensors/slot_states.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_conv.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/tensor_norm.h"

namespace layercast {

// Resource; one thread only.
class TensorDeltaNet final : public TensorBlock {
 public:
  TensorDeltaNet(const DeltaNetDescription& description, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;
  bool is_recurrent() const override { return true; }

 private:
  // Reorders a projection from key heads with parts of these sizes to part after part, each with all heads. Without
  // sizes it is in that order already.
  at::Tensor ByPart(const at::Tensor& projected, const std::vector<std::int64_t>& sizes) const;
  // The vectors of key heads that `channels` holds from `begin` on, normalized to length one and repeated for each
  // value head: [rows, value heads, key_head_dim].
  at::Tensor Keys(const at::Tensor& channels, std::int64_t begin) const;
  // Updates the state by keys and values, and returns what the queries read from it, [rows, value heads,
  // value_head_dim].
  at::Tensor Update(const StepInputs& inputs, const at::Tensor& channels, const at::Tensor& decay,
                    const at::Tensor& beta);

  DeltaNetSizes sizes_;
  std::vector<std::int64_t> qkvz_parts_, ba_parts_;
  Activation activation_;
  at::ScalarType type_;
  TensorLinear in_proj_qkvz_, in_proj_ba_, out_proj_;
  TensorConv conv_;
  WeightTensor a_, dt_bias_;
  TensorNorm norm_;
  SlotStates states_;  // [num_value_heads, key_head_dim, value_head_dim]
};

}  // namespace layercast
