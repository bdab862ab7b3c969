// Multi-head latent attention in its absorbed form: W_UK_T takes queries to the latent space, where they attend to the
// latent vectors, the only ones that are cached; W_UV turns the result into values. Prompts and single tokens are
// computed in the same way, so that a token's result does not depend on how its prompt was cut. Made by MakeBlock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine_side/engine/block.h"
#include "engine_side/engine/cpu/blocks/row_norm.h"
#include "engine_side/engine/cpu/kernels/attend.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "layercast/model/latent_attention.h"

namespace layercast {

// Resource; one thread only.
class LatentAttentionBlock final : public Block {
 public:
  LatentAttentionBlock(const LatentAttention& attention, const std::string& path, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;
  void Drop(std::uint64_t sequence) override { cache_.erase(sequence); }
  void DropAll() override { cache_.clear(); }

 private:
  void Project(const Activations& in);
  void Remember(const TokenRow& row, std::span<const float> factors, std::span<float> latent);
  void Turn(std::span<float> part, std::size_t position);
  void AttendHead(std::span<const TokenRow> rows, std::size_t head);

  Collective& collective_;
  DType dtype_;
  bool interleaved_;
  std::size_t heads_;                                    // those of this rank
  std::size_t q_latent_, latent_, nope_, rope_, value_;  // numbers of elements, from LatentSizes
  AttendOptions attend_;
  RotaryTable& rotary_;
  LinearWeights compress_, queries_of_, o_;  // compress_ makes: queries' latent (if any), latent vector, key
  WeightView to_latent_, to_value_;          // W_UK_T and W_UV, head after head
  std::optional<Norm> q_norm_;
  Norm kv_norm_;
  // For each sequence, at each position, the latent vector followed by the rotated key, together padded to whole
  // vectors.
  std::unordered_map<std::uint64_t, std::vector<float>> cache_;

  Activations compressed_, q_compressed_, q_normed_, queries_, attended_;  // scratch
  std::vector<float> scores_, query_, head_out_, pairs_;
};

}  // namespace layercast
