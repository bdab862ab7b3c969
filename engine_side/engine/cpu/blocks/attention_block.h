// Grouped-query attention with its own KV cache. The module says which of these it has: rotary embeddings, a sliding
// window, norms of queries and keys, capped scores, gated outputs. Made by MakeBlock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine_side/engine/block.h"
#include "engine_side/engine/cpu/blocks/norm_over_heads.h"
#include "engine_side/engine/cpu/blocks/row_norm.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "engine_side/engine/kv_cache.h"
#include "layercast/model/attention.h"

namespace layercast {

// Resource; one thread only.
class AttentionBlock final : public Block {
 public:
  AttentionBlock(const Attention& attention, const std::string& path, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;
  void Drop(std::uint64_t sequence) override { cache_.Drop(sequence); }
  void DropAll() override { cache_.Clear(); }

 private:
  void PrepareHeads(const TokenRow& row, std::span<float> qkv);
  void AttendRow(const TokenRow& row, std::span<const float> queries, std::span<float> out);
  void Gate(std::span<float> queries, std::span<float> out) const;

  Collective& collective_;
  DType dtype_;
  std::size_t heads_, kv_heads_, head_dim_;  // those of this rank
  bool output_gate_;
  std::size_t query_stride_;  // floats from one query head to the next; its gate lies between
  std::size_t rotary_dim_;
  std::size_t window_;  // 0: none
  AttendOptions attend_;
  RotaryTable* rotary_;                  // null: no rotation
  LinearWeights qkv_, o_;                // rows of qkv: query heads, key heads, value heads
  std::optional<Norm> q_norm_, k_norm_;  // of each head
  std::optional<NormOverHeads> norm_over_heads_;
  std::optional<WeightView> sinks_;
  KvCache cache_;

  std::vector<float> q_factors_, k_factors_;  // read anew in each pass; empty: no norm
  std::vector<float> head_sinks_;             // read anew in each pass
  Activations qkv_out_, attended_;            // scratch
  std::vector<float> scores_, query_, head_out_;
};

}  // namespace layercast
