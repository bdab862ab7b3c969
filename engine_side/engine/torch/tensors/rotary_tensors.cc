#include "engine_side/engine/torch/tensors/rotary_tensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "engine_side/engine/torch/tensors/tensor_linear.h"

namespace layercast {

RotaryTensors::Turns RotaryTensors::For(RotaryTable* table) {
  if (table == nullptr) return {};
  const auto found = std::ranges::find(turns_, table, [](const auto& entry) { return entry.first; });
  if (found != turns_.end()) return found->second;
  table->GrowTo(static_cast<std::size_t>(positions_));
  const auto pairs = static_cast<std::int64_t>(table->pairs());
  const auto filled = [&](auto row_at) {
    const at::Tensor tensor = at::empty({positions_, 1, pairs}, at::kFloat);
    float* to = tensor.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < positions_; ++i) {
      to = std::ranges::copy(row_at(static_cast<std::size_t>(i)), to).out;
    }
    return tensor.to(device_);
  };
  Turns turns{filled([&](std::size_t i) { return table->Cos(i); }),
              filled([&](std::size_t i) { return table->Sin(i); })};
  return turns_.emplace_back(table, std::move(turns)).second;
}

at::Tensor Turned(const at::Tensor& heads, const RotaryTensors::Turns& turns, const at::Tensor& positions,
                  at::ScalarType type) {
  const std::int64_t pairs = turns.cos.size(-1);
  const at::Tensor cos = at::index_select(turns.cos, 0, positions);
  const at::Tensor sin = at::index_select(turns.sin, 0, positions);
  const at::Tensor first = heads.narrow(-1, 0, pairs);
  const at::Tensor second = heads.narrow(-1, pairs, pairs);
  const auto times = [&](const at::Tensor& x, const at::Tensor& y) { return Rounded(x * y, type); };
  const at::Tensor rest = heads.narrow(-1, 2 * pairs, heads.size(-1) - 2 * pairs);
  return at::cat({Rounded(times(first, cos) - times(second, sin), type),
                  Rounded(times(second, cos) + times(first, sin), type), rest},
                 -1);
}

}  // namespace layercast
