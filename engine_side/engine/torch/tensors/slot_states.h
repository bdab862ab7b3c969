// The states of recurrent blocks in the decode step: for every slot a tensor that each token of its sequence changes.
// Used by those blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine_side/engine/torch/tensors/tensor_block.h"

namespace layercast {

// Resource; one thread only. Its memory never moves.
class SlotStates {
 public:
  // Each slot has an fp32 tensor of this shape.
  SlotStates(at::IntArrayRef shape, const TensorContext& context);
  // A copy of the states that the last tokens of the rows' slots left, [rows, shape]; zeros where a sequence begins.
  at::Tensor Of(const StepInputs& inputs) const;
  void Put(const StepInputs& inputs, const at::Tensor& states);

 private:
  at::Tensor memory_;  // the last slot is for unused rows
};

}  // namespace layercast
