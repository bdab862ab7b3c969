// What the decode step computes of a decoder layer: blocks as engine_side/engine/block.h has them, in tensor operations
// of fixed shapes that a CUDA graph can capture. A new one is a file beside tensor_attention, and a line in
// MakeTensorBlock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "engine_side/engine/captured_weights.h"
#include "engine_side/engine/torch/decode_rows.h"
#include "engine_side/engine/torch/rotary_tensors.h"
#include "layercast/model/module.h"

namespace layercast {

// What is computed for each row, int64 [rows], on the step's device. Their memory never moves. Value.
struct StepInputs {
  at::Tensor tokens;
  at::Tensor positions;
  at::Tensor slots;  // a row that is not used has one that is nobody's
};

// Resource; one thread only.
class TensorBlock {
 public:
  virtual ~TensorBlock() = default;
  // Queues the block's operations for rows of `in`, fp32 [rows, hidden_size], and returns what they will have written,
  // rounded to the model's dtype. Must not wait for the device, nor let a number that only the device knows decide
  // what is queued.
  virtual at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) = 0;
  // Whether it keeps a state that each token of a sequence changes: a step may then have one row of a slot at most.
  virtual bool is_recurrent() const { return false; }
};

// What a block is made with. The weights are looked up, once, by its constructor. References are not kept.
struct TensorContext {
  CapturedWeights& weights;
  RotaryTensors& rotary;
  at::Device device;
  at::ScalarType type;  // activations are rounded to it after every operation
  StepShape shape;      // whole: max_tokens is not 0
};

// Throws kUnsupported, naming path and class, if there is no block for `module`.
std::unique_ptr<TensorBlock> MakeTensorBlock(const Module& module, const std::string& path,
                                             const TensorContext& context);

}  // namespace layercast
