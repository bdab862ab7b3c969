#include "engine_side/engine/cpu/blocks/mamba_block.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine_side/engine/cpu/blocks/adapted_linear.h"
#include "engine_side/engine/cpu/blocks/row_norm.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {

MambaBlock::MambaBlock(MambaDescription description, const BlockContext& context)
    : description_(std::move(description)),
      collective_(context.collective),
      dtype_(context.dtype),
      sizes_(description_.sizes),
      conv_(description_.conv1d) {}

void MambaBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  const SlotGroups groups = GroupBySlot(rows);
  ColumnParallel(in, description_.in_proj, groups, projected_);
  const Values values = ReadValues();
  const std::size_t inner = Size(sizes_.inner());
  scanned_.Reset(rows.size(), inner);
  const auto fresh = [&] { return FreshState(); };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    State& state = states_.Of(rows[i], fresh);
    const std::span<float> channels = projected_[i].subspan(inner, conv_.channels());
    conv_.Apply(values.conv, channels, state.window);
    RoundTo(dtype_, channels);
    Activate(Activation::kSilu, channels, dtype_);
    Scan(values, projected_[i].subspan(inner), state.scan, scanned_[i]);
  }
  NormalizeGated(values.norm);
  RowParallel(scanned_, description_.out_proj, groups, collective_, out);
}

MambaBlock::Values MambaBlock::ReadValues() const {
  return {.conv = conv_.ReadValues(),
          .a = ReadVector(description_.a),
          .d = ReadVector(description_.d),
          .dt_bias = ReadVector(description_.dt_bias),
          .norm = FactorsOf(description_.norm)};
}

MambaBlock::State MambaBlock::FreshState() const {
  return {.window = std::vector<float>(conv_.window_size()),
          .scan = std::vector<float>(Size(sizes_.inner() * sizes_.state_size))};
}

// For each head: state := exp(dt * a) * state + dt * x B^T, y := state C + D x. `projected` holds x, B, C and dt.
void MambaBlock::Scan(const Values& values, std::span<const float> projected, std::vector<float>& state,
                      std::span<float> out) const {
  const std::size_t heads = Size(sizes_.num_heads), head_dim = Size(sizes_.head_dim), size = Size(sizes_.state_size);
  const std::size_t groups = Size(sizes_.num_groups);
  const std::span<const float> b_of_groups = projected.subspan(heads * head_dim, groups * size);
  const std::span<const float> c_of_groups = projected.subspan(heads * head_dim + groups * size, groups * size);
  for (std::size_t head = 0; head < heads; ++head) {
    const float step = Softplus(projected[conv_.channels() + head] + values.dt_bias[head]);
    const float dt = std::clamp(step, static_cast<float>(description_.options.time_step_min),
                                static_cast<float>(description_.options.time_step_max));
    const float decay = std::exp(dt * values.a[head]);
    const std::size_t group = head / (heads / groups);
    const float* b = b_of_groups.data() + group * size;
    const float* c = c_of_groups.data() + group * size;
    for (std::size_t i = head * head_dim; i < (head + 1) * head_dim; ++i) {
      float* row = state.data() + i * size;
      float y = values.d[head] * projected[i];
      for (std::size_t n = 0; n < size; ++n) {
        row[n] = decay * row[n] + dt * projected[i] * b[n];
        y += row[n] * c[n];
      }
      out[i] = y;
    }
  }
}

// In place, for each group: y := round(weight * g / sqrt(mean(g^2) + epsilon)) with g = y * silu(gate). As in the
// kernels of mamba_ssm, the scan's result is rounded only here.
void MambaBlock::NormalizeGated(std::span<const float> factors) {
  const std::size_t groups = Size(sizes_.num_groups), group_size = Size(sizes_.group_inner());
  std::vector<float> sums(scanned_.rows() * groups, 0.0F);
  for (std::size_t i = 0; i < scanned_.rows(); ++i) {
    const std::span<float> gate = projected_[i].first(scanned_.cols());
    GateMultiply(Activation::kSilu, gate, scanned_[i], DType::kF32);
    std::ranges::copy(gate, scanned_[i].begin());
    for (std::size_t g = 0; g < groups; ++g) {
      sums[i * groups + g] = SumOfSquares(gate.subspan(g * group_size, group_size));
    }
  }
  if (description_.norm.total_size != sizes_.group_inner()) collective_.AllReduceSum(sums);
  for (std::size_t i = 0; i < scanned_.rows(); ++i) {
    for (std::size_t g = 0; g < groups; ++g) {
      Normalize(description_.norm, sums[i * groups + g], factors.subspan(g * group_size, group_size),
                scanned_[i].subspan(g * group_size, group_size));
    }
  }
}

}  // namespace layercast
