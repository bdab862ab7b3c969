// The cache of attention in the decode step: vectors for every position of every slot. Used by its blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine_side/engine/torch/tensors/tensor_block.h"

namespace layercast {

// A tensor of zeros for what sequences leave behind: in the memory that the context's shape names, or in torch's own.
at::Tensor ZeroCache(at::IntArrayRef sizes, at::ScalarType type, const TensorContext& context);

// Resource; one thread only. Its memory never moves.
class SlotCache {
 public:
  // Each position has `heads` vectors of `size` elements, in the model's dtype.
  SlotCache(std::int64_t heads, std::int64_t size, const TensorContext& context);

  // Writes all rows' vectors, [rows, heads, size]. Call it before Of: a row also sees earlier rows of its sequence in
  // the same step.
  void Put(const StepInputs& inputs, const at::Tensor& vectors);
  // A copy of what each row's slot holds, fp32 [rows, heads, max_tokens, size].
  at::Tensor Of(const StepInputs& inputs) const;

  // Which positions of its slot a row must not see, bool [rows, max_tokens]: those after its own, and those before the
  // last `window` ones unless `window` is 0.
  at::Tensor Unseen(const StepInputs& inputs, std::int64_t window) const;

 private:
  at::Tensor memory_;         // the last slot is for unused rows
  at::Tensor all_positions_;  // int64 [max_tokens]
};

}  // namespace layercast
