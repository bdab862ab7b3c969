// The causal convolution of recurrent blocks in the decode step, as engine_side/engine/causal_conv.h has it: of each
// channel on its own, over a slot's last tokens. Used by them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "engine_side/engine/torch/slot_states.h"
#include "engine_side/engine/torch/tensor_block.h"
#include "engine_side/engine/torch/weight_tensor.h"

namespace layercast {

// Resource; one thread only.
class TensorConv {
 public:
  // `weights`: [channels, kernel], the newest token's tap last.
  TensorConv(const LinearWeights& weights, const TensorContext& context);
  std::int64_t channels() const { return taps_.rows(); }
  // Of the rows' tokens, [rows, channels] both, plus bias; in fp32, not rounded. The slots' windows move on by one.
  at::Tensor Apply(const StepInputs& inputs, const at::Tensor& tokens);

 private:
  WeightTensor taps_;
  std::optional<WeightTensor> bias_;
  SlotStates window_;  // [channels, kernel - 1], the oldest first
};

}  // namespace layercast
