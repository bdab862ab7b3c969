// The decode step of a decoder-only model, written once in tensor operations for any device that torch has. It computes
// what Decoder computes, but in fixed shapes and over fixed memory, so that a CUDA graph can hold it. Used by
// DecodeGraph. Needs libtorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine_side/engine/blocks/decoder_description.h"
#include "engine_side/engine/forward_pass.h"
#include "engine_side/engine/torch/tensors/decode_rows.h"
#include "engine_side/engine/torch/tensors/rotary_tensors.h"
#include "engine_side/engine/torch/tensors/step_inputs.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_low_rank.h"
#include "engine_side/engine/torch/tensors/tensor_norm.h"
#include "engine_side/engine/torch/tensors/weight_tensor.h"
#include "layercast/captured_buffers.h"
#include "layercast/parallel.h"

namespace layercast {

// Resource; one thread only. Its operations go to the calling thread's current torch stream.
class DecodeStep {
 public:
  // Runs on the device that holds the buffers; all must be on the same one. `model` is a DecoderForCausalLM of one rank
  // and is needed only during this call; the buffers' memory and the adapter slots (null: none), which are on that
  // device too, must outlive the step. Throws kUnsupported, naming what it cannot compute, and as CapturedWeights does.
  DecodeStep(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
             RopeFunction make_rope, const StepShape& shape, const AdapterSlots* adapters = nullptr);

  static at::Device DeviceOf(std::span<const CapturedBuffer> buffers);

  // Copies to the inputs what the next Queue computes and, where they have changed, the adapter slots' scales; rows
  // beyond these are not used. Throws kInvalidArgument, naming the row, for too many rows, for a token, position, slot
  // or adapter slot that is out of range, and, if is_recurrent(), for two rows of one slot.
  void Put(std::span<const DecodeRow> rows);
  // Queues the operations, and does not wait for them. They read inputs, weights and cache, and write the cache and the
  // logits.
  void Queue();
  // The logits of the first `rows` rows. Waits for what is queued.
  Logits Read(std::size_t rows) const;

  const StepShape& shape() const { return shape_; }
  bool is_recurrent() const { return is_recurrent_; }  // whether any block is recurrent
  std::size_t vocab_size() const { return static_cast<std::size_t>(vocab_size_); }
  std::uint64_t times_queued() const { return times_queued_; }

 private:
  struct Step {
    TensorNorm norm;
    std::unique_ptr<TensorBlock> block;
    std::optional<TensorNorm> post_norm;
  };

  DecodeStep(const DecoderDescription& description, const at::Device& device, const StepShape& shape,
             const AdapterSlots* adapters);
  void PutScales();
  void Check(std::span<const DecodeRow> rows) const;
  void CheckOneOfASlot(std::span<const DecodeRow> rows) const;
  at::Tensor Embedded() const;

  at::Device device_;
  at::ScalarType type_, residual_type_;  // residual_type_: of the sums between blocks
  StepShape shape_;
  std::int64_t vocab_size_;
  double embedding_scale_, logit_softcap_;
  WeightTensor embedding_, lm_head_;  // the same tensor if they are tied
  TensorNorm final_norm_;
  const AdapterSlots* adapters_;
  TensorLowRank embedding_adapter_, head_adapter_;
  std::vector<Step> steps_;
  bool is_recurrent_ = false;
  at::Tensor staged_;         // int64 [4, rows] in host memory: tokens, positions, slots, adapter slots
  at::Tensor placed_;         // staged_, on the device
  at::Tensor staged_scales_;  // StepInputs::adapter_scales, in host memory
  StepInputs inputs_;         // the rows of placed_
  at::Tensor logits_;         // fp32 [rows, the head's rows]
  std::uint64_t times_queued_ = 0;
};

}  // namespace layercast
