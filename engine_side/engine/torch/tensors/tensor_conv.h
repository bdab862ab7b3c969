// The causal convolution of recurrent blocks in the decode step, like engine_side/engine/cpu/blocks/causal_conv.h: each
// channel by itself, over a slot's last tokens. Used by those blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "engine_side/engine/torch/tensors/slot_states.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/weight_tensor.h"

namespace layercast {

// Resource; one thread only.
class TensorConv {
 public:
  // `weights` is [channels, kernel], with the newest token's tap last.
  TensorConv(const LinearWeights& weights, const TensorContext& context);
  std::int64_t channels() const { return taps_.rows(); }
  // The convolution of the rows' tokens, plus bias, in fp32 and not rounded; argument and result are [rows, channels].
  // Moves the slots' windows on by one token.
  at::Tensor Apply(const StepInputs& inputs, const at::Tensor& tokens);

 private:
  WeightTensor taps_;
  std::optional<WeightTensor> bias_;
  SlotStates window_;  // [channels, kernel - 1], the oldest first
};

}  // namespace layercast
