#include "engine_side/engine/cpu/blocks/delta_net_block.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine_side/engine/cpu/blocks/adapted_linear.h"
#include "engine_side/engine/cpu/blocks/row_norm.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {
namespace {

// Reorders each row: from [part 0 | part 1 | ...] of one head after another to part 0 of all heads, then part 1 of all
// heads, and so on.
void GatherParts(std::size_t heads, std::span<const std::int64_t> sizes, Activations& rows) {
  if (sizes.empty()) return;
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    const std::vector<float> by_head(rows[i].begin(), rows[i].end());
    const float* from = by_head.data();
    for (std::size_t head = 0; head < heads; ++head) {
      float* part = rows.row(i);
      for (const std::int64_t signed_size : sizes) {
        const std::size_t size = Size(signed_size);
        std::copy_n(from, size, part + head * size);
        from += size;
        part += heads * size;
      }
    }
  }
}

// vector *= scale / |vector|
void NormalizeLength(std::span<float> vector, float scale) {
  constexpr auto kEpsilon = static_cast<float>(DeltaNetDescription::kLengthEpsilon);
  const float factor = scale / std::sqrt(SumOfSquares(vector) + kEpsilon);
  for (float& value : vector) value *= factor;
}

}  // namespace

DeltaNetBlock::DeltaNetBlock(DeltaNetDescription description, const BlockContext& context)
    : description_(std::move(description)),
      collective_(context.collective),
      dtype_(context.dtype),
      sizes_(description_.sizes),
      conv_(description_.conv1d),
      correction_(Size(sizes_.value_head_dim)) {}

void DeltaNetBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  const SlotGroups groups = GroupBySlot(rows);
  ColumnParallel(in, description_.in_proj_qkvz, groups, qkvz_);
  ColumnParallel(in, description_.in_proj_ba, groups, ba_);
  GatherParts(Size(sizes_.num_key_heads), description_.qkvz_parts, qkvz_);
  GatherParts(Size(sizes_.num_key_heads), description_.ba_parts, ba_);
  const Values values = ReadValues();
  mixed_.Reset(rows.size(), Size(sizes_.values()));
  const auto fresh = [&] { return FreshState(); };
  for (std::size_t i = 0; i < rows.size(); ++i) Step(values, qkvz_[i], ba_[i], states_.Of(rows[i], fresh), mixed_[i]);
  RowParallel(mixed_, description_.out_proj, groups, collective_, out);
}

DeltaNetBlock::Values DeltaNetBlock::ReadValues() const {
  return {.conv = conv_.ReadValues(),
          .a = ReadVector(description_.a),
          .dt_bias = ReadVector(description_.dt_bias),
          .norm = FactorsOf(description_.norm)};
}

DeltaNetBlock::State DeltaNetBlock::FreshState() const {
  return {.window = std::vector<float>(conv_.window_size()),
          .memory = std::vector<float>(Size(sizes_.key_head_dim * sizes_.values()))};
}

void DeltaNetBlock::Step(const Values& values, std::span<float> qkvz, std::span<float> ba, State& state,
                         std::span<float> out) {
  const std::span<float> channels = qkvz.first(conv_.channels());
  conv_.Apply(values.conv, channels, state.window);
  RoundTo(dtype_, channels);
  Activate(description_.activation, channels, dtype_);
  const std::span<float> queries = channels.first(Size(sizes_.keys()));
  const std::span<float> keys = channels.subspan(queries.size(), queries.size());
  NormalizeKeys(queries, keys);

  const std::size_t heads = Size(sizes_.num_value_heads), of_key = heads / Size(sizes_.num_key_heads);
  const std::size_t key_dim = Size(sizes_.key_head_dim), value_dim = Size(sizes_.value_head_dim);
  const std::span<float> betas = ba.first(heads);
  for (float& beta : betas) beta = Sigmoid(beta);
  RoundTo(dtype_, betas);
  for (std::size_t head = 0; head < heads; ++head) {
    const float decay = std::exp(values.a[head] * Softplus(ba[heads + head] + values.dt_bias[head]));
    const std::size_t key = head / of_key * key_dim;
    UpdateHead(queries.data() + key, keys.data() + key,
               channels.subspan(2 * queries.size() + head * value_dim, value_dim), decay, betas[head],
               state.memory.data() + head * key_dim * value_dim, out.subspan(head * value_dim, value_dim));
  }
  RoundTo(dtype_, out);
  NormalizeAndGate(values, qkvz.subspan(channels.size()), out);
}

// Normalizes queries and keys to length one. Queries are also divided by the square root of their size.
void DeltaNetBlock::NormalizeKeys(std::span<float> queries, std::span<float> keys) const {
  const std::size_t size = Size(sizes_.key_head_dim);
  const float scale = 1.0F / std::sqrt(static_cast<float>(size));
  for (std::size_t begin = 0; begin < keys.size(); begin += size) {
    NormalizeLength(queries.subspan(begin, size), scale);
    NormalizeLength(keys.subspan(begin, size), 1.0F);
  }
}

// memory := decay * memory, then += key (beta * (value - key memory)); out := query memory. Rows of `memory` are keys.
void DeltaNetBlock::UpdateHead(const float* query, const float* key, std::span<const float> value, float decay,
                               float beta, float* memory, std::span<float> out) {
  const std::size_t keys = Size(sizes_.key_head_dim), width = value.size();
  std::ranges::fill(correction_, 0.0F);
  for (std::size_t k = 0; k < keys; ++k) {
    float* row = memory + k * width;
    for (std::size_t v = 0; v < width; ++v) {
      row[v] *= decay;
      correction_[v] += key[k] * row[v];
    }
  }
  for (std::size_t v = 0; v < width; ++v) correction_[v] = beta * (value[v] - correction_[v]);
  std::ranges::fill(out, 0.0F);
  for (std::size_t k = 0; k < keys; ++k) {
    float* row = memory + k * width;
    for (std::size_t v = 0; v < width; ++v) {
      row[v] += key[k] * correction_[v];
      out[v] += query[k] * row[v];
    }
  }
}

// out := norm(out) * silu(gate) for each head, with the gate in fp32.
void DeltaNetBlock::NormalizeAndGate(const Values& values, std::span<float> gates, std::span<float> out) const {
  const std::size_t width = Size(sizes_.value_head_dim);
  for (std::size_t begin = 0; begin < out.size(); begin += width) {
    Normalize(description_.norm, values.norm, out.subspan(begin, width));
  }
  Activate(Activation::kSilu, gates, DType::kF32);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= gates[i];
  RoundTo(dtype_, out);
}

}  // namespace layercast
