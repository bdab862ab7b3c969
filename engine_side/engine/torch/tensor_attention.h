// Grouped-query attention of the decode step, over a cache of fixed shape. Made by MakeTensorBlock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine_side/engine/torch/tensor_block.h"
#include "engine_side/engine/torch/tensor_linear.h"
#include "engine_side/engine/torch/tensor_norm.h"
#include "layercast/model/attention.h"

namespace layercast {

// Every row computes a score with every position of its slot, and masks those that it must not see: a step costs what
// the longest sequence would, whatever the lengths. Resource; one thread only.
class TensorAttention final : public TensorBlock {
 public:
  // Throws kUnsupported, naming them, for sinks, gated outputs and norms over all heads.
  TensorAttention(const Attention& attention, const std::string& path, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;

 private:
  // Normalized and turned; [rows, heads, head_dim] both.
  at::Tensor Prepared(const at::Tensor& heads, const std::optional<TensorNorm>& norm,
                      const at::Tensor& positions) const;
  at::Tensor Turned(const at::Tensor& heads, const at::Tensor& positions) const;
  // Whether a row must not see a position of its slot: bool [rows, max_tokens].
  at::Tensor Unseen(const at::Tensor& positions) const;
  at::Tensor Attend(const StepInputs& inputs, const at::Tensor& queries) const;
  // What the rows' slots hold, fp32 [rows, kv_heads, max_tokens, head_dim].
  at::Tensor Cached(const at::Tensor& cache, const at::Tensor& slots) const;

  AttentionSpec spec_;
  StepShape shape_;
  at::ScalarType type_;
  TensorLinear qkv_, o_;  // rows of qkv: query heads, key heads, value heads
  std::optional<TensorNorm> q_norm_, k_norm_;
  RotaryTensors::Turns turns_;  // empty: nothing is turned
  at::Tensor all_positions_;    // int64 [max_tokens]
  at::Tensor keys_,
      values_;  // [(slots + 1) * max_tokens, kv_heads, head_dim] of the model's dtype; the last is nobody's
};

}  // namespace layercast
