// Multi-head latent attention. Prompts and single tokens are computed in the same way, so that a token's result does
// not depend on how its prompt was cut. Made by MakeBlock.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/cpu/blocks/low_rank.h"
#include "engine_side/engine/cpu/kernels/attend.h"

namespace layercast {

// What the adapter of a slot adds for kv_b_proj (LatentAttentionDescription::kv_b_adapter), its factors as fp32. The
// rows of B for a head's keys, or for its values, begin at `first_row`. Value; the group is borrowed.
struct KeyValueDelta {
  const SlotGroup* group;  // the rows that have the slot
  std::size_t rank;
  float scale;
  std::vector<float> a, b;

  // in_latent += scale * (query B) A
  void AddToQuery(std::size_t first_row, std::span<const float> query, std::span<float> in_latent) const;
  // out += scale * B (A of_values)
  void AddToValue(std::size_t first_row, std::span<const float> of_values, std::span<float> out) const;
};

// Resource; one thread only.
class LatentAttentionBlock final : public Block {
 public:
  LatentAttentionBlock(LatentAttentionDescription description, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;
  void Drop(std::uint64_t sequence) override { cache_.erase(sequence); }
  void DropAll() override { cache_.clear(); }

 private:
  void Project(const Activations& in, const SlotGroups& groups);
  void Remember(const TokenRow& row, std::span<const float> factors, std::span<float> latent);
  void Turn(std::span<float> part, std::size_t position);
  std::vector<KeyValueDelta> DeltasOf(const SlotGroups& groups) const;
  // `deltas`: of each row; null: none.
  void AttendHead(std::span<const TokenRow> rows, std::span<const KeyValueDelta* const> deltas, std::size_t head);

  const LatentAttentionDescription description_;
  Collective& collective_;
  DType dtype_;
  std::size_t heads_, q_latent_, latent_, nope_, rope_, value_;  // numbers of elements, from LatentSizes
  AttendOptions attend_;
  // For each sequence, at each position, the latent vector followed by the rotated key, together padded to whole
  // vectors.
  std::unordered_map<std::uint64_t, std::vector<float>> cache_;

  Activations compressed_, q_compressed_, q_normed_, queries_, attended_;  // scratch
  std::vector<float> scores_, query_, head_out_, pairs_;
};

}  // namespace layercast
