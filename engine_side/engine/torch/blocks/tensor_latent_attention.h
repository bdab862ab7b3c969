// Multi-head latent attention of the decode step, in its absorbed form: see
// engine_side/engine/cpu/blocks/latent_attention_block.h. Made by MakeTensorBlock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine_side/engine/torch/tensors/slot_cache.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/tensor_norm.h"
#include "layercast/model/latent_attention.h"

namespace layercast {

// As in TensorAttention, every row computes a score with every position of its slot. Resource; one thread only.
class TensorLatentAttention final : public TensorBlock {
 public:
  TensorLatentAttention(const LatentAttention& attention, const std::string& path, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;

 private:
  // `parts` rotated by their rows' positions; both are [rows, n, rope].
  at::Tensor Turn(const at::Tensor& parts, const at::Tensor& positions) const;
  // The queries in the space of the cached vectors, [rows, heads, latent + rope].
  at::Tensor InLatentSpace(const at::Tensor& queries, const at::Tensor& positions) const;
  // The queries' attention over the cache, [rows, heads, latent], not rounded.
  at::Tensor Attend(const StepInputs& inputs, const at::Tensor& queries) const;

  LatentSizes sizes_;
  double scale_;
  bool interleaved_;
  at::ScalarType type_;
  RotaryTensors::Turns turns_;
  TensorLinear compress_, queries_of_, o_;  // compress_ makes: queries' latent (if any), latent vector, key
  WeightTensor to_latent_, to_value_;       // W_UK_T and W_UV, head after head
  std::optional<TensorNorm> q_norm_;
  TensorNorm kv_norm_;
  SlotCache cache_;  // at each position the latent vector, then the rotated key
};

}  // namespace layercast
