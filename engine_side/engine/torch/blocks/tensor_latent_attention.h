// Multi-head latent attention of the decode step. Made by MakeTensorBlock.
#pragma once

#include <cstdint>
#include <optional>

#include "engine_side/engine/torch/tensors/slot_cache.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/tensor_norm.h"

namespace layercast {

// As in TensorAttention, every row computes a score with every position of its slot. Resource; one thread only.
class TensorLatentAttention final : public TensorBlock {
 public:
  TensorLatentAttention(const LatentAttentionDescription& description, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;

 private:
  // `parts` rotated by their rows' positions; both are [rows, n, rope].
  at::Tensor Turn(const at::Tensor& parts, const at::Tensor& positions) const;
  // The queries in the space of the cached vectors, [rows, heads, latent + rope].
  at::Tensor InLatentSpace(const StepInputs& inputs, const at::Tensor& queries) const;
  // The queries' attention over the cache, [rows, heads, latent], not rounded.
  at::Tensor Attend(const StepInputs& inputs, const at::Tensor& queries) const;
  // What the attention's result makes of values, [rows, heads, value].
  at::Tensor Values(const StepInputs& inputs, const at::Tensor& attended) const;
  // The rows of an adapter's B for each head, [heads, count, rank], from the head's row `first` on.
  at::Tensor OfHeads(const at::Tensor& b, std::int64_t first, std::int64_t count) const;

  LatentAttentionSpec spec_;
  at::ScalarType type_;
  RotaryTensors::Turns turns_;
  TensorLinear compress_, queries_of_, o_;
  WeightTensor w_uk_t_, w_uv_;
  TensorLowRank kv_b_;
  std::optional<TensorNorm> q_norm_;
  TensorNorm kv_norm_;
  SlotCache cache_;  // at each position the latent vector, then the rotated key
};

}  // namespace layercast
