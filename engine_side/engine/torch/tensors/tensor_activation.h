// The activations of activation.h in tensors. Used by the feed-forward and recurrent blocks of the decode step.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine_side/engine/cpu/kernels/activation.h"

namespace layercast {

// activation(x) in fp32, not rounded.
at::Tensor Activated(Activation activation, const at::Tensor& x);

// activation(gate), rounded to `type`, times up, rounded again.
at::Tensor GateTimesUp(Activation activation, const at::Tensor& gate, const at::Tensor& up, at::ScalarType type);

}  // namespace layercast
