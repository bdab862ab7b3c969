// What recurrent blocks of the decode step keep of every slot: a tensor that each token of its sequence changes. Used
// by them.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine_side/engine/torch/tensor_block.h"

namespace layercast {

// Memory that never moves. Resource; one thread only.
class SlotStates {
 public:
  // fp32 of that shape for each slot.
  SlotStates(at::IntArrayRef shape, const TensorContext& context);
  // What the last tokens of the rows' slots left, [rows, shape]: zeros where a sequence begins. A copy.
  at::Tensor Of(const StepInputs& inputs) const;
  void Put(const StepInputs& inputs, const at::Tensor& states);

 private:
  at::Tensor memory_;  // [slots + 1, shape]; the last slot is nobody's
};

}  // namespace layercast
