#include "engine_side/engine/cpu/blocks/delta_net_block.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {
namespace {

// Reorders each row: from [part 0 | part 1 | ...] of one head after another to part 0 of all heads, then part 1 of all
// heads, and so on.
void GatherParts(std::size_t heads, std::span<const std::size_t> sizes, Activations& rows) {
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    const std::vector<float> by_head(rows[i].begin(), rows[i].end());
    const float* from = by_head.data();
    for (std::size_t head = 0; head < heads; ++head) {
      float* part = rows.row(i);
      for (const std::size_t size : sizes) {
        std::copy_n(from, size, part + head * size);
        from += size;
        part += heads * size;
      }
    }
  }
}

// vector *= scale / |vector|
void NormalizeLength(std::span<float> vector, float scale) {
  constexpr float kEpsilon = 1e-6F;
  const float factor = scale / std::sqrt(SumOfSquares(vector) + kEpsilon);
  for (float& value : vector) value *= factor;
}

}  // namespace

DeltaNetBlock::DeltaNetBlock(const GatedDeltaNet& net, const std::string& path, const BlockContext& context)
    : collective_(context.collective),
      dtype_(context.dtype),
      sizes_(net.local_sizes()),
      rows_(net.options().rows),
      activation_(ActivationOf(net.options().hidden_act)),
      in_proj_qkvz_(context.weights.Linear(*net.FindChild("in_proj_qkvz"), path + ".in_proj_qkvz")),
      in_proj_ba_(context.weights.Linear(*net.FindChild("in_proj_ba"), path + ".in_proj_ba")),
      out_proj_(context.weights.Linear(*net.FindChild("out_proj"), path + ".out_proj")),
      conv_(context.weights.Linear(*net.FindChild("conv1d"), path + ".conv1d")),
      a_(context.weights.FindDerived(net, path, "A")),
      dt_bias_(context.weights.Find(net, path, "dt_bias")),
      norm_(*net.FindChild("norm"), path + ".norm", context.weights),
      correction_(Size(sizes_.value_head_dim)) {}

void DeltaNetBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  ColumnParallel(in, in_proj_qkvz_, dtype_, qkvz_);
  ColumnParallel(in, in_proj_ba_, dtype_, ba_);
  if (rows_ == DeltaNetRows::kByKeyHead) {
    const std::size_t heads = Size(sizes_.num_key_heads);
    const std::size_t keys = Size(sizes_.key_head_dim), values = Size(sizes_.values()) / heads;
    const std::size_t value_heads = Size(sizes_.num_value_heads) / heads;
    GatherParts(heads, std::array{keys, keys, values, values}, qkvz_);
    GatherParts(heads, std::array{value_heads, value_heads}, ba_);
  }
  const Values values = ReadValues();
  mixed_.Reset(rows.size(), Size(sizes_.values()));
  const auto fresh = [&] { return FreshState(); };
  for (std::size_t i = 0; i < rows.size(); ++i) Step(values, qkvz_[i], ba_[i], states_.Of(rows[i], fresh), mixed_[i]);
  RowParallel(mixed_, out_proj_, dtype_, collective_, out);
}

DeltaNetBlock::Values DeltaNetBlock::ReadValues() const {
  return {.conv = conv_.ReadValues(), .a = ReadVector(a_), .dt_bias = ReadVector(dt_bias_), .norm = norm_.Factors()};
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
  Activate(activation_, channels, dtype_);
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
    norm_.Apply(values.norm, dtype_, out.subspan(begin, width));
  }
  Activate(Activation::kSilu, gates, DType::kF32);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= gates[i];
  RoundTo(dtype_, out);
}

}  // namespace layercast
