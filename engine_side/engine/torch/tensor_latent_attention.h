// Multi-head latent attention of the decode step, absorbed as in engine_side/engine/latent_attention_block.h. Made by
// MakeTensorBlock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine_side/engine/torch/slot_cache.h"
#include "engine_side/engine/torch/tensor_block.h"
#include "engine_side/engine/torch/tensor_linear.h"
#include "engine_side/engine/torch/tensor_norm.h"
#include "layercast/model/latent_attention.h"

namespace layercast {

// As in TensorAttention, every row computes a score with every position of its slot. Resource; one thread only.
class TensorLatentAttention final : public TensorBlock {
 public:
  TensorLatentAttention(const LatentAttention& attention, const std::string& path, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;

 private:
  // By position; [rows, n, rope] both.
  at::Tensor Turn(const at::Tensor& parts, const at::Tensor& positions) const;
  // What queries look like to the cache, [rows, heads, latent + rope].
  at::Tensor InLatentSpace(const at::Tensor& queries, const at::Tensor& positions) const;
  // What they get of it, [rows, heads, latent], not rounded.
  at::Tensor Attend(const StepInputs& inputs, const at::Tensor& queries) const;

  LatentSizes sizes_;
  double scale_;
  bool interleaved_;
  at::ScalarType type_;
  RotaryTensors::Turns turns_;
  TensorLinear compress_, queries_of_, o_;  // rows of compress_: the queries' vector, if any, the latent one, the key
  WeightTensor to_latent_, to_value_;       // W_UK_T, W_UV: all heads' rows, one after another
  std::optional<TensorNorm> q_norm_;
  TensorNorm kv_norm_;
  SlotCache cache_;  // of a position: its latent vector, then its key
};

}  // namespace layercast
