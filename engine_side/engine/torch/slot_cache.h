// What attention in the decode step keeps of every position of every slot. Used by its blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine_side/engine/torch/tensor_block.h"

namespace layercast {

// Memory that never moves. Resource; one thread only.
class SlotCache {
 public:
  // For each position `heads` vectors of `size` elements, of the model's dtype.
  SlotCache(std::int64_t heads, std::int64_t size, const TensorContext& context);

  // All rows' vectors, [rows, heads, size]. Before any of them is read: rows of one sequence see those before them, in
  // one step or in several.
  void Put(const StepInputs& inputs, const at::Tensor& vectors);
  // What the rows' slots hold, fp32 [rows, heads, max_tokens, size]; a copy.
  at::Tensor Of(const StepInputs& inputs) const;

  // Whether a row must not see a position of its slot: one behind its own, or before the last `window`, unless that is
  // 0. bool [rows, max_tokens].
  at::Tensor Unseen(const StepInputs& inputs, std::int64_t window) const;

 private:
  at::Tensor memory_;         // [slots + 1, max_tokens, heads, size]; the last slot is nobody's
  at::Tensor all_positions_;  // int64 [max_tokens]
};

}  // namespace layercast
