#include "engine_side/engine/cpu/blocks/latent_attention_block.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine_side/engine/cpu/blocks/adapted_linear.h"
#include "engine_side/engine/cpu/blocks/row_norm.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {
namespace {

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

void KeyValueDelta::AddToQuery(std::size_t first_row, std::span<const float> query, std::span<float> in_latent) const {
  std::vector<float> h(rank, 0.0F);
  AddProduct(query, std::span(b).subspan(first_row * rank, query.size() * rank), h);
  for (float& value : h) value *= scale;
  AddProduct(h, a, in_latent);
}

void KeyValueDelta::AddToValue(std::size_t first_row, std::span<const float> of_values, std::span<float> out) const {
  const auto product = [](std::span<const float> x, const float* y) {
    return std::inner_product(x.begin(), x.end(), y, 0.0F);
  };
  std::vector<float> h(rank);
  for (std::size_t j = 0; j < rank; ++j) h[j] = product(of_values, a.data() + j * of_values.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += scale * product(h, b.data() + (first_row + i) * rank);
}

LatentAttentionBlock::LatentAttentionBlock(LatentAttentionDescription description, const BlockContext& context)
    : description_(std::move(description)),
      collective_(context.collective),
      dtype_(context.dtype),
      heads_(Size(description_.spec.sizes.num_heads)),
      q_latent_(Size(description_.spec.sizes.q_lora_rank)),
      latent_(Size(description_.spec.sizes.kv_lora_rank)),
      nope_(Size(description_.spec.sizes.qk_nope_head_dim)),
      rope_(Size(description_.spec.sizes.qk_rope_head_dim)),
      value_(Size(description_.spec.sizes.v_head_dim)),
      attend_{static_cast<float>(description_.spec.scale), 0.0F},
      query_(Activations::Padded(latent_ + rope_)),
      head_out_(query_.size()),
      pairs_(rope_) {}

void LatentAttentionBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  const SlotGroups groups = GroupBySlot(rows);
  Project(in, groups);
  const std::vector<KeyValueDelta> deltas = DeltasOf(groups);
  std::vector<const KeyValueDelta*> of_rows(rows.size(), nullptr);
  for (const KeyValueDelta& delta : deltas) {
    for (const std::size_t row : delta.group->rows) of_rows[row] = &delta;
  }
  const std::vector<float> factors = FactorsOf(description_.kv_a_layernorm);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    description_.rotary->GrowTo(rows[i].position + 1);
    Remember(rows[i], factors, compressed_[i].last(latent_ + rope_));
  }
  attended_.Reset(rows.size(), heads_ * value_);
  for (std::size_t head = 0; head < heads_; ++head) AttendHead(rows, of_rows, head);
  RoundTo(dtype_, attended_.values());
  RowParallel(attended_, description_.o_proj, groups, collective_, out);
}

// Computes the compressed vectors, and the queries of this rank's heads.
void LatentAttentionBlock::Project(const Activations& in, const SlotGroups& groups) {
  ColumnParallel(in, description_.compress, groups, compressed_);
  if (!description_.q_a_layernorm) return ColumnParallel(in, description_.queries_of, groups, queries_);
  q_compressed_.Reset(in.rows(), q_latent_);
  for (std::size_t i = 0; i < in.rows(); ++i) std::copy_n(compressed_.row(i), q_latent_, q_compressed_.row(i));
  Normalize(*description_.q_a_layernorm, q_compressed_, q_normed_);
  ColumnParallel(q_normed_, description_.queries_of, groups, queries_);
}

// Appends a row to the cache. `latent` is the latent vector, which is normalized first, followed by the key, which is
// rotated first.
void LatentAttentionBlock::Remember(const TokenRow& row, std::span<const float> factors, std::span<float> latent) {
  Normalize(description_.kv_a_layernorm, factors, latent.first(latent_));
  Turn(latent.last(rope_), row.position);
  std::vector<float>& rows = cache_[row.sequence];
  rows.resize((row.position + 1) * query_.size());
  std::ranges::copy(latent, rows.end() - static_cast<std::ptrdiff_t>(query_.size()));
}

// Rotates a query or a key. Pairs that are interleaved are first split into halves, for queries and keys alike, so that
// their products stay the same.
void LatentAttentionBlock::Turn(std::span<float> part, std::size_t position) {
  if (description_.spec.interleaved) {
    std::ranges::copy(part, pairs_.begin());
    for (std::size_t i = 0; i < rope_; ++i) part[i % 2 * (rope_ / 2) + i / 2] = pairs_[i];
  }
  Rotate(part, description_.rotary->Cos(position), description_.rotary->Sin(position), dtype_);
}

std::vector<KeyValueDelta> LatentAttentionBlock::DeltasOf(const SlotGroups& groups) const {
  std::vector<KeyValueDelta> deltas;
  for (const LowRankTerm& term : TermsOf(description_.kv_b_adapter, groups)) {
    deltas.push_back({.group = term.group,
                      .rank = term.b.cols,
                      .scale = term.scale,
                      .a = ReadRows(term.a, 0, term.a.rows),
                      .b = ReadRows(term.b, 0, term.b.rows)});
  }
  return deltas;
}

void LatentAttentionBlock::AttendHead(std::span<const TokenRow> rows, std::span<const KeyValueDelta* const> deltas,
                                      std::size_t head) {
  const std::vector<float> to_latent = ReadRows(description_.w_uk_t, head * nope_, nope_);
  const std::vector<float> to_value = ReadRows(description_.w_uv, head * latent_, latent_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<float> query = queries_[i].subspan(head * (nope_ + rope_), nope_ + rope_);
    std::ranges::fill(query_, 0.0F);
    const std::span<float> in_latent = std::span(query_).first(latent_);
    AddProduct(query.first(nope_), to_latent, in_latent);
    if (deltas[i] != nullptr) deltas[i]->AddToQuery(head * (nope_ + value_), query.first(nope_), in_latent);
    RoundTo(dtype_, in_latent);
    Turn(query.last(rope_), rows[i].position);
    std::ranges::copy(query.last(rope_), query_.begin() + static_cast<std::ptrdiff_t>(latent_));

    const HeadRows cached{cache_.at(rows[i].sequence).data(), query_.size(), rows[i].position + 1};
    Attend(query_.data(), cached, cached, attend_, query_.size(), scores_, head_out_.data());
    const std::span<float> of_values = std::span(head_out_).first(latent_);
    RoundTo(dtype_, of_values);
    const std::span<float> out = attended_[i].subspan(head * value_, value_);
    AddProduct(of_values, to_value, out);
    if (deltas[i] != nullptr) deltas[i]->AddToValue(head * (nope_ + value_) + nope_, of_values, out);
  }
}

}  // namespace layercast
