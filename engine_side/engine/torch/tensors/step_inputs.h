// What a decode step reads of its rows, as tensors. Used by all of its parts.
#pragma once

#include <ATen/core/Tensor.h>

namespace layercast {

// The inputs of each row, each int64 [rows], on the step's device. Their memory never moves. Value.
struct StepInputs {
  at::Tensor tokens;
  at::Tensor positions;
  at::Tensor slots;     // an unused row has a slot that no sequence has
  at::Tensor adapters;  // the adapter slots; -1: none
  // fp32 [adapter slots, numbers of a slot], on the step's device too: each term's scale, 0 if the slot has nothing for
  // it. Undefined if there are no adapter slots.
  at::Tensor adapter_scales{};
};

}  // namespace layercast
