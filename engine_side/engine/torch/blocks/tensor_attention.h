// Grouped-query attention of the decode step, over a cache of fixed shape. Made by MakeTensorBlock.
#pragma once

#include <cstdint>
#include <optional>

#include "engine_side/engine/torch/tensors/slot_cache.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/tensor_norm.h"

namespace layercast {

// Every row computes a score with every position of its slot, and masks those that it must not see, so a step costs
// what it would with the longest possible sequences. Resource; one thread only.
class TensorAttention final : public TensorBlock {
 public:
  TensorAttention(const AttentionDescription& description, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;

 private:
  // `heads` normalized and rotated; both are [rows, heads, head_dim].
  at::Tensor Prepared(const at::Tensor& heads, const std::optional<TensorNorm>& norm,
                      const at::Tensor& positions) const;
  // The attention's result, [rows, heads, head_dim], not rounded.
  at::Tensor Attend(const StepInputs& inputs, const at::Tensor& queries) const;
  at::Tensor Softmax(const at::Tensor& scores) const;

  AttentionSpec spec_;
  std::int64_t query_stride_;
  at::ScalarType type_;
  TensorLinear qkv_, o_;
  std::optional<TensorNorm> q_norm_, k_norm_;
  std::optional<WeightTensor> sinks_;
  RotaryTensors::Turns turns_;  // undefined: no rotation
  SlotCache keys_, values_;
};

}  // namespace layercast
