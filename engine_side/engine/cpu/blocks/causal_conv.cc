#include "engine_side/engine/cpu/blocks/causal_conv.h"

#include "src/base/check.h"

namespace layercast {

CausalConv::Values CausalConv::ReadValues() const {
  const WeightView& weight = weights_.weight;
  Values values{.taps = std::vector<float>(weight.rows * weight.cols),
                .bias = weights_.bias ? ReadVector(*weights_.bias) : std::vector<float>()};
  for (std::size_t row = 0; row < weight.rows; ++row) ReadRow(weight, row, values.taps.data() + row * weight.cols);
  return values;
}

void CausalConv::Apply(const Values& values, std::span<float> token, std::vector<float>& window) const {
  LAYERCAST_CHECK(token.size() == channels() && window.size() == window_size());
  const std::size_t taps = weights_.weight.cols;
  window.insert(window.end(), token.begin(), token.end());
  for (std::size_t c = 0; c < token.size(); ++c) {
    float sum = values.bias.empty() ? 0.0F : values.bias[c];
    for (std::size_t tap = 0; tap < taps; ++tap) sum += values.taps[c * taps + tap] * window[tap * token.size() + c];
    token[c] = sum;
  }
  window.erase(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(token.size()));
}

}  // namespace layercast
