#include "engine_side/engine/cpu/blocks/attention_block.h"

#include <algorithm>

#include "engine_side/engine/cpu/kernels/activation.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {
namespace {

bool IsOverHeads(const Module& norm) { return dynamic_cast<const ParallelRMSNorm*>(&norm) != nullptr; }

std::optional<Norm> FindNorm(const Attention& attention, const char* name, const std::string& path,
                             CapturedWeights& weights) {
  const Module* norm = attention.FindChild(name);
  if (norm == nullptr || IsOverHeads(*norm)) return std::nullopt;
  return Norm(*norm, path + "." + name, weights);
}

std::optional<NormOverHeads> FindNormOverHeads(const Attention& attention, const std::string& path,
                                               const BlockContext& context) {
  const Module* norm = attention.FindChild("q_norm");
  if (norm == nullptr || !IsOverHeads(*norm)) return std::nullopt;
  return NormOverHeads(attention, path, context);
}

std::optional<WeightView> FindSinks(const Attention& attention, const std::string& path, CapturedWeights& weights) {
  return attention.spec().sinks ? std::optional(weights.Find(attention, path, "sinks")) : std::nullopt;
}

}  // namespace

AttentionBlock::AttentionBlock(const Attention& attention, const std::string& path, const BlockContext& context)
    : collective_(context.collective),
      dtype_(context.dtype),
      heads_(static_cast<std::size_t>(attention.spec().heads.num_heads)),
      kv_heads_(static_cast<std::size_t>(attention.spec().heads.num_kv_heads)),
      head_dim_(static_cast<std::size_t>(attention.spec().heads.head_dim)),
      output_gate_(attention.spec().output_gate),
      query_stride_(output_gate_ ? 2 * head_dim_ : head_dim_),
      rotary_dim_(static_cast<std::size_t>(attention.spec().rotary.dim)),
      window_(static_cast<std::size_t>(attention.spec().sliding_window)),
      attend_{.scale = static_cast<float>(attention.spec().scale),
              .logit_softcap = static_cast<float>(attention.spec().logit_softcap)},
      rotary_(rotary_dim_ == 0 ? nullptr : &context.rotary.For(attention.spec().rotary)),
      qkv_(context.weights.Linear(*attention.FindChild("qkv_proj"), path + ".qkv_proj")),
      o_(context.weights.Linear(*attention.FindChild("o_proj"), path + ".o_proj")),
      q_norm_(FindNorm(attention, "q_norm", path, context.weights)),
      k_norm_(FindNorm(attention, "k_norm", path, context.weights)),
      norm_over_heads_(FindNormOverHeads(attention, path, context)),
      sinks_(FindSinks(attention, path, context.weights)),
      cache_(kv_heads_, head_dim_),
      query_(cache_.padded_head_dim()),
      head_out_(cache_.padded_head_dim()) {}

void AttentionBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  ColumnParallel(in, qkv_, dtype_, qkv_out_);
  if (q_norm_) q_factors_ = q_norm_->Factors();
  if (k_norm_) k_factors_ = k_norm_->Factors();
  if (norm_over_heads_) norm_over_heads_->Apply(qkv_out_);
  if (sinks_) head_sinks_ = ReadVector(*sinks_);
  for (std::size_t i = 0; i < rows.size(); ++i) PrepareHeads(rows[i], qkv_out_[i]);
  attended_.Reset(rows.size(), heads_ * head_dim_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    AttendRow(rows[i], qkv_out_[i], attended_[i]);
    if (output_gate_) Gate(qkv_out_[i], attended_[i]);
  }
  RowParallel(attended_, o_, dtype_, collective_, out);
}

// Normalizes and rotates the row's queries and keys, and puts its keys and values into the cache.
void AttentionBlock::PrepareHeads(const TokenRow& row, std::span<float> qkv) {
  if (rotary_ != nullptr) rotary_->GrowTo(row.position + 1);
  const std::span<float> keys_and_values = qkv.subspan(heads_ * query_stride_);
  for (std::size_t head = 0; head < heads_ + kv_heads_; ++head) {
    const std::span<float> values = head < heads_ ? qkv.subspan(head * query_stride_, head_dim_)
                                                  : keys_and_values.subspan((head - heads_) * head_dim_, head_dim_);
    const std::optional<Norm>& norm = head < heads_ ? q_norm_ : k_norm_;
    if (norm) norm->Apply(head < heads_ ? q_factors_ : k_factors_, dtype_, values);
    if (rotary_ == nullptr) continue;
    Rotate(values.first(rotary_dim_), rotary_->Cos(row.position), rotary_->Sin(row.position), dtype_);
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
  const std::size_t end = row.position + 1;
  const std::size_t begin = window_ == 0 || end <= window_ ? 0 : end - window_;
  for (std::size_t head = 0; head < heads_; ++head) {
    const std::size_t kv_head = head / (heads_ / kv_heads_);
    std::copy_n(queries.data() + head * query_stride_, head_dim_, query_.data());
    if (sinks_) attend_.sink = head_sinks_[head];
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
