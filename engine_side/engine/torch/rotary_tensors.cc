#include "engine_side/engine/torch/rotary_tensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace layercast {

const RotaryTensors::Turns& RotaryTensors::For(const RotaryEmbedding& embedding) {
  RotaryTable& table = tables_.For(embedding);
  const auto found = std::ranges::find(turns_, &table, [](const auto& entry) { return entry.first; });
  if (found != turns_.end()) return *found->second;
  table.GrowTo(static_cast<std::size_t>(positions_));
  const std::int64_t pairs = embedding.dim / 2;
  const auto filled = [&](auto row_at) {
    const at::Tensor tensor = at::empty({positions_, 1, pairs}, at::kFloat);
    float* to = tensor.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < positions_; ++i) {
      to = std::ranges::copy(row_at(static_cast<std::size_t>(i)), to).out;
    }
    return tensor.to(device_);
  };
  Turns turns{filled([&](std::size_t i) { return table.Cos(i); }), filled([&](std::size_t i) { return table.Sin(i); })};
  return *turns_.emplace_back(&table, std::make_unique<Turns>(std::move(turns))).second;
}

}  // namespace layercast
