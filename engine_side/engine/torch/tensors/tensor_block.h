// Blocks that compute the parts of a decoder layer in the decode step: those of block_description.h, in tensor
// operations of fixed shapes that a CUDA graph can capture. A new one gets a file of its own, like tensor_attention,
// and a line in MakeTensorBlock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "engine_side/engine/blocks/block_description.h"
#include "engine_side/engine/torch/tensors/decode_rows.h"
#include "engine_side/engine/torch/tensors/rotary_tensors.h"
#include "engine_side/engine/torch/tensors/step_inputs.h"

namespace layercast {

// Resource; one thread only.
class TensorBlock {
 public:
  virtual ~TensorBlock() = default;
  // Queues the block's operations for the rows of `in`, fp32 [rows, hidden_size], and returns the tensor that will hold
  // their result, rounded to the model's dtype. Must not wait for the device, nor let a number that only the device
  // knows decide what is queued.
  virtual at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) = 0;
  // Whether the block keeps a state that each token of a sequence changes. If so, a step may have at most one row per
  // slot.
  virtual bool is_recurrent() const { return false; }
};

// What a block is made with. Its constructor keeps no reference to the context's members.
struct TensorContext {
  RotaryTensors& rotary;
  at::Device device;
  at::ScalarType type;  // activations are rounded to it after every operation
  StepShape shape;      // max_tokens is resolved: it is not 0
};

// Makes the block that computes what is described. The weights' memory must outlive the block.
std::unique_ptr<TensorBlock> MakeTensorBlock(const BlockDescription& description, const TensorContext& context);

}  // namespace layercast
