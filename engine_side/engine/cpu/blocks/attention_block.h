// Grouped-query attention with its own KV cache. Made by MakeBlock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/cpu/kernels/attend.h"
#include "engine_side/engine/kv_cache.h"

namespace layercast {

// Resource; one thread only.
class AttentionBlock final : public Block {
 public:
  AttentionBlock(AttentionDescription description, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;
  void Drop(std::uint64_t sequence) override { cache_.Drop(sequence); }
  void DropAll() override { cache_.Clear(); }

 private:
  void NormalizeOverHeads();
  void PrepareHeads(const TokenRow& row, std::span<float> qkv);
  void AttendRow(const TokenRow& row, std::span<const float> queries, std::span<float> out);
  void Gate(std::span<float> queries, std::span<float> out) const;

  const AttentionDescription description_;
  Collective& collective_;
  DType dtype_;
  std::size_t heads_, kv_heads_, head_dim_;
  std::size_t query_stride_;  // floats from one query head to the next; its gate lies between
  bool norms_over_heads_;
  AttendOptions attend_;
  KvCache cache_;

  std::vector<float> q_factors_, k_factors_, head_sinks_;  // read anew in each pass
  Activations qkv_out_, attended_;                         // scratch
  std::vector<float> scores_, query_, head_out_;
};

}  // namespace layercast
