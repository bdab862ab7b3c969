#include "engine_side/engine/rotary_table.h"

#include <algorithm>
#include <cmath>

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "src/base/check.h"

namespace layercast {

void RotaryTable::GrowTo(std::size_t end) {
  if (pairs() == 0) return;
  const std::size_t begin = cos_.size() / pairs();
  for (std::size_t position = begin; position < end; ++position) {
    for (const float frequency : rope_.inverse_frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      cos_.push_back(std::cos(angle) * rope_.attention_factor);
      sin_.push_back(std::sin(angle) * rope_.attention_factor);
    }
  }
  if (end <= begin) return;
  RoundTo(dtype_, std::span(cos_).subspan(begin * pairs()));
  RoundTo(dtype_, std::span(sin_).subspan(begin * pairs()));
}

RotaryTable& RotaryTables::For(const RotaryEmbedding& embedding) {
  const auto found = std::ranges::find(tables_, embedding, [](const auto& entry) { return entry.first; });
  if (found != tables_.end()) return *found->second;
  Rope rope = make_rope_(embedding);
  LAYERCAST_CHECK(static_cast<std::int64_t>(rope.inverse_frequencies.size()) * 2 == embedding.dim);
  return *tables_.emplace_back(embedding, std::make_unique<RotaryTable>(std::move(rope), dtype_)).second;
}

}  // namespace layercast
