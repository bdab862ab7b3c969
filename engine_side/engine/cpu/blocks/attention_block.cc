#include "engine_side/engine/cpu/blocks/attention_block.h"

#include <algorithm>
#include <utility>

#include "engine_side/engine/cpu/blocks/adapted_linear.h"
#include "engine_side/engine/cpu/blocks/row_norm.h"
#include "engine_side/engine/cpu/kernels/activation.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {

AttentionBlock::AttentionBlock(AttentionDescription description, const BlockContext& context)
    : description_(std::move(description)),
      collective_(context.collective),
      dtype_(context.dtype),
      heads_(Size(description_.spec.heads.num_heads)),
      kv_heads_(Size(description_.spec.heads.num_kv_heads)),
      head_dim_(Size(description_.spec.heads.head_dim)),
      query_stride_(Size(description_.query_stride())),
      norms_over_heads_(description_.q_norm && description_.q_norm->total_size != 0),
      attend_{.scale = static_cast<float>(description_.spec.scale),
              .logit_softcap = static_cast<float>(description_.spec.logit_softcap)},
      cache_(kv_heads_, head_dim_),
      query_(cache_.padded_head_dim()),
      head_out_(cache_.padded_head_dim()) {}

void AttentionBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  const SlotGroups groups = GroupBySlot(rows);
  ColumnParallel(in, description_.qkv_proj, groups, qkv_out_);
  if (description_.q_norm) q_factors_ = FactorsOf(*description_.q_norm);
  if (description_.k_norm) k_factors_ = FactorsOf(*description_.k_norm);
  if (norms_over_heads_) NormalizeOverHeads();
  if (description_.sinks) head_sinks_ = ReadVector(*description_.sinks);
  for (std::size_t i = 0; i < rows.size(); ++i) PrepareHeads(rows[i], qkv_out_[i]);
  attended_.Reset(rows.size(), heads_ * head_dim_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    AttendRow(rows[i], qkv_out_[i], attended_[i]);
    if (description_.spec.output_gate) Gate(qkv_out_[i], attended_[i]);
  }
  RowParallel(attended_, description_.o_proj, groups, collective_, out);
}

// Normalizes the queries and keys with which each row begins, each over all heads together, including those on other
// ranks. Makes one sum over ranks for all of them.
void AttentionBlock::NormalizeOverHeads() {
  const auto part_of = [&](std::size_t row, bool keys) {
    return keys ? qkv_out_[row].subspan(q_factors_.size(), k_factors_.size()) : qkv_out_[row].first(q_factors_.size());
  };
  std::vector<float> sums(2 * qkv_out_.rows());
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = SumOfSquares(part_of(i / 2, i % 2 == 1));
  collective_.AllReduceSum(sums);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const bool keys = i % 2 == 1;
    Normalize(keys ? *description_.k_norm : *description_.q_norm, sums[i], keys ? k_factors_ : q_factors_,
              part_of(i / 2, keys));
  }
}

// Normalizes and rotates the row's queries and keys, and puts its keys and values into the cache.
void AttentionBlock::PrepareHeads(const TokenRow& row, std::span<float> qkv) {
  RotaryTable* const rotary = description_.rotary;
  if (rotary != nullptr) rotary->GrowTo(row.position + 1);
  const std::span<float> keys_and_values = qkv.subspan(heads_ * query_stride_);
  for (std::size_t head = 0; head < heads_ + kv_heads_; ++head) {
    const std::span<float> values = head < heads_ ? qkv.subspan(head * query_stride_, head_dim_)
                                                  : keys_and_values.subspan((head - heads_) * head_dim_, head_dim_);
    const std::optional<NormOperand>& norm = head < heads_ ? description_.q_norm : description_.k_norm;
    if (norm && !norms_over_heads_) Normalize(*norm, head < heads_ ? q_factors_ : k_factors_, values);
    if (rotary == nullptr) continue;
    Rotate(values.first(2 * rotary->pairs()), rotary->Cos(row.position), rotary->Sin(row.position), dtype_);
  }
  cache_.GrowTo(row.sequence, row.position + 1);
  for (std::size_t head = 0; head < kv_heads_; ++head) {
    const float* key = keys_and_values.data() + head * head_dim_;
    const float* value = keys_and_values.data() + (kv_heads_ + head) * head_dim_;
    std::copy_n(key, head_dim_, cache_.Key(row.sequence, row.position, head));
    std::copy_n(value, head_dim_, cache_.Value(row.sequence, row.position, head));
  }
}

void AttentionBlock::AttendRow(const TokenRow& row, std::span<const float> queries, std::span<float> out) {
  const std::size_t end = row.position + 1, window = Size(description_.spec.sliding_window);
  const std::size_t begin = window == 0 || end <= window ? 0 : end - window;
  for (std::size_t head = 0; head < heads_; ++head) {
    const std::size_t kv_head = head / (heads_ / kv_heads_);
    std::copy_n(queries.data() + head * query_stride_, head_dim_, query_.data());
    if (description_.sinks) attend_.sink = head_sinks_[head];
    Attend(query_.data(), cache_.Keys(row.sequence, kv_head, begin, end),
           cache_.Values(row.sequence, kv_head, begin, end), attend_, cache_.padded_head_dim(), scores_,
           head_out_.data());
    std::copy_n(head_out_.data(), head_dim_, out.data() + head * head_dim_);
  }
  RoundTo(dtype_, out);
}

// out *= sigmoid(gate), head by head.
void AttentionBlock::Gate(std::span<float> queries, std::span<float> out) const {
  for (std::size_t head = 0; head < heads_; ++head) {
    const std::span<float> gate = queries.subspan(head * query_stride_ + head_dim_, head_dim_);
    for (float& value : gate) value = Sigmoid(value);
    RoundTo(dtype_, gate);
    for (std::size_t i = 0; i < head_dim_; ++i) out[head * head_dim_ + i] *= gate[i];
  }
  RoundTo(dtype_, out);
}

}  // namespace layercast
