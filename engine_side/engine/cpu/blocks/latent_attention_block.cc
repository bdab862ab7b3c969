#include "engine_side/engine/cpu/blocks/latent_attention_block.h"

#include <algorithm>

#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {
namespace {

LinearWeights FindLinear(const LatentAttention& attention, const char* first, const char* otherwise,
                         const std::string& path, CapturedWeights& weights) {
  const char* name = attention.FindChild(first) != nullptr ? first : otherwise;
  return weights.Linear(*attention.FindChild(name), path + "." + name);
}

std::optional<Norm> FindNorm(const LatentAttention& attention, const char* name, const std::string& path,
                             CapturedWeights& weights) {
  const Module* norm = attention.FindChild(name);
  return norm == nullptr ? std::nullopt : std::optional(Norm(*norm, path + "." + name, weights));
}

// Reads rows [first, first + count) as fp32.
std::vector<float> ReadRows(const WeightView& weight, std::size_t first, std::size_t count) {
  std::vector<float> values(count * weight.cols);
  for (std::size_t i = 0; i < count; ++i) ReadRow(weight, first + i, values.data() + i * weight.cols);
  return values;
}

// y += x . matrix, row after row, in fp32. The matrix has as many rows as x has elements.
void AddProduct(std::span<const float> x, std::span<const float> matrix, std::span<float> y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t c = 0; c < y.size(); ++c) y[c] += x[i] * matrix[i * y.size() + c];
  }
}

}  // namespace

LatentAttentionBlock::LatentAttentionBlock(const LatentAttention& attention, const std::string& path,
                                           const BlockContext& context)
    : collective_(context.collective),
      dtype_(context.dtype),
      interleaved_(attention.spec().interleaved),
      heads_(Size(attention.local_heads())),
      q_latent_(Size(attention.spec().sizes.q_lora_rank)),
      latent_(Size(attention.spec().sizes.kv_lora_rank)),
      nope_(Size(attention.spec().sizes.qk_nope_head_dim)),
      rope_(Size(attention.spec().sizes.qk_rope_head_dim)),
      value_(Size(attention.spec().sizes.v_head_dim)),
      attend_{static_cast<float>(attention.spec().scale), 0.0F},
      rotary_(context.rotary.For(attention.spec().rotary)),
      compress_(FindLinear(attention, "fused_qkv_a_proj", "kv_a_proj_with_mqa", path, context.weights)),
      queries_of_(FindLinear(attention, "q_b_proj", "q_proj", path, context.weights)),
      o_(context.weights.Linear(*attention.FindChild("o_proj"), path + ".o_proj")),
      to_latent_(context.weights.FindDerived(*attention.FindChild("kv_b_proj"), path + ".kv_b_proj", "W_UK_T")),
      to_value_(context.weights.FindDerived(*attention.FindChild("kv_b_proj"), path + ".kv_b_proj", "W_UV")),
      q_norm_(FindNorm(attention, "q_a_layernorm", path, context.weights)),
      kv_norm_(*attention.FindChild("kv_a_layernorm"), path + ".kv_a_layernorm", context.weights),
      query_(Activations::Padded(latent_ + rope_)),
      head_out_(query_.size()),
      pairs_(rope_) {}

void LatentAttentionBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  Project(in);
  const std::vector<float> factors = kv_norm_.Factors();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rotary_.GrowTo(rows[i].position + 1);
    Remember(rows[i], factors, compressed_[i].last(latent_ + rope_));
  }
  attended_.Reset(rows.size(), heads_ * value_);
  for (std::size_t head = 0; head < heads_; ++head) AttendHead(rows, head);
  RoundTo(dtype_, attended_.values());
  RowParallel(attended_, o_, dtype_, collective_, out);
}

// Computes the compressed vectors, and the queries of this rank's heads.
void LatentAttentionBlock::Project(const Activations& in) {
  ColumnParallel(in, compress_, dtype_, compressed_);
  if (!q_norm_) return ColumnParallel(in, queries_of_, dtype_, queries_);
  q_compressed_.Reset(in.rows(), q_latent_);
  for (std::size_t i = 0; i < in.rows(); ++i) std::copy_n(compressed_.row(i), q_latent_, q_compressed_.row(i));
  q_norm_->Apply(q_compressed_, dtype_, q_normed_);
  ColumnParallel(q_normed_, queries_of_, dtype_, queries_);
}

// Appends a row to the cache. `latent` is the latent vector, which is normalized first, followed by the key, which is
// rotated first.
void LatentAttentionBlock::Remember(const TokenRow& row, std::span<const float> factors, std::span<float> latent) {
  kv_norm_.Apply(factors, dtype_, latent.first(latent_));
  Turn(latent.last(rope_), row.position);
  std::vector<float>& rows = cache_[row.sequence];
  rows.resize((row.position + 1) * query_.size());
  std::ranges::copy(latent, rows.end() - static_cast<std::ptrdiff_t>(query_.size()));
}

// Rotates a query or a key. Pairs that are interleaved are first split into halves, for queries and keys alike, so that
// their products stay the same.
void LatentAttentionBlock::Turn(std::span<float> part, std::size_t position) {
  if (interleaved_) {
    std::ranges::copy(part, pairs_.begin());
    for (std::size_t i = 0; i < rope_; ++i) part[i % 2 * (rope_ / 2) + i / 2] = pairs_[i];
  }
  Rotate(part, rotary_.Cos(position), rotary_.Sin(position), dtype_);
}

void LatentAttentionBlock::AttendHead(std::span<const TokenRow> rows, std::size_t head) {
  const std::vector<float> to_latent = ReadRows(to_latent_, head * nope_, nope_);
  const std::vector<float> to_value = ReadRows(to_value_, head * latent_, latent_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<float> query = queries_[i].subspan(head * (nope_ + rope_), nope_ + rope_);
    std::ranges::fill(query_, 0.0F);
    const std::span<float> in_latent = std::span(query_).first(latent_);
    AddProduct(query.first(nope_), to_latent, in_latent);
    RoundTo(dtype_, in_latent);
    Turn(query.last(rope_), rows[i].position);
    std::ranges::copy(query.last(rope_), query_.begin() + static_cast<std::ptrdiff_t>(latent_));

    const HeadRows cached{cache_.at(rows[i].sequence).data(), query_.size(), rows[i].position + 1};
    Attend(query_.data(), cached, cached, attend_, query_.size(), scores_, head_out_.data());
    const std::span<float> of_values = std::span(head_out_).first(latent_);
    RoundTo(dtype_, of_values);
    AddProduct(of_values, to_value, attended_[i].subspan(head * value_, value_));
  }
}

}  // namespace layercast
